"""One rank of a run that the built-in launcher started: ``python -m ckptdoctor.trainer.launch.worker``.

The launcher tells it by environment variables where it stands (see ``variables``), which pipe is its lifeline, which
function to call, and which private folder holds the rest.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.launch import lifeline
from ckptdoctor.trainer.launch.contact import LostContactError
from ckptdoctor.trainer.launch.positions import PositionBoard, show_on
from ckptdoctor.trainer.launch.reports import Report, Status
from ckptdoctor.trainer.launch.stopping import SIGNALS, StopRequest
from ckptdoctor.trainer.launch.variables import Place, place


def main() -> None:
    """Carry out this rank's part and end the process.

    It ends at once and not in the usual way: after a failure, threads of gloo or NCCL may still be waiting for a rank
    that is no more, and the interpreter would wait for them.
    """
    status = run(os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run(environ: Mapping[str, str]) -> Status:
    """Do the work of one rank. Every exception becomes a report: this is the last place that can catch it."""
    folder = Path(environ["CKPTDOCTOR_FOLDER"])
    lifeline.hold(int(environ["CKPTDOCTOR_LIFELINE"]), folder)
    with StopRequest().installed() as stop:
        # the launcher had them blocked, so that none could arrive before somebody listens
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        own = place(environ)
        assert own is not None
        try:
            _work(own, folder, environ["CKPTDOCTOR_TARGET"], stop)
        except BaseException as error:  # noqa: BLE001  SystemExit and KeyboardInterrupt have to be told of as well
            return _report(error, folder / f"rank-{own.rank}.json")
    return Status.OK


def _work(own: Place, folder: Path, target: str, stop: StopRequest) -> None:
    from ckptdoctor.trainer.launch.world import join  # here, so that a failing import of torch is reported, too

    show_on(PositionBoard(folder / "positions"), own.rank)
    config = Config.from_json((folder / "config.json").read_text(encoding="utf-8"))
    work = resolve(target)
    with join(own, config) as team:
        work(config, team, stop)


def resolve(target: str) -> Callable[..., Any]:
    """The function that "package.module:name" stands for."""
    module, _, name = target.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def _report(error: BaseException, path: Path) -> Status:
    traceback.print_exception(error)
    Report.of(error).write(path)
    if isinstance(error, LostContactError):
        return Status.LOST_CONTACT
    return Status.REFUSED if isinstance(error, CkptDoctorError) else Status.FAILED


if __name__ == "__main__":
    main()
