"""One rank of a run that the built-in launcher started: ``python -m ckptdoctor.trainer.launch.worker``.

The launcher tells it by environment variables where it stands (see ``variables``), which pipe is its lifeline, which
function to call, and which private folder holds the rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.launch.contact import LostContactError
from ckptdoctor.trainer.launch.positions import PositionBoard, show_on
from ckptdoctor.trainer.launch.reports import RankReport, Status
from ckptdoctor.trainer.launch.stopping import SIGNALS, StopRequest
from ckptdoctor.trainer.launch.variables import RankPlace, place


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
    hold_lifeline(int(environ["CKPTDOCTOR_LIFELINE"]), folder)
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


def _work(own: RankPlace, folder: Path, target: str, stop: StopRequest) -> None:
    from ckptdoctor.trainer.launch.world import join  # here, so that a failing import of torch is reported, too

    show_on(PositionBoard(folder / "positions"), own.rank)
    config = RunConfig.from_json((folder / "config.json").read_text(encoding="utf-8"))
    work = resolve(target)
    with join(own, config) as team:
        work(config, team, stop)


def resolve(target: str) -> Callable[..., Any]:
    """Return the function that "package.module:name" stands for."""
    module, _, name = target.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def _report(error: BaseException, path: Path) -> Status:
    traceback.print_exception(error)
    RankReport.of(error).write(path)
    if isinstance(error, LostContactError):
        return Status.LOST_CONTACT
    return Status.REFUSED if isinstance(error, CkptDoctorError) else Status.FAILED


def hold_lifeline(pipe: int, folder: Path) -> None:
    """End the process group of this process when the pipe is closed at the other end, and remove the run's folder.

    So there are no orphans: a rank ends when its launcher does, in whatever way the launcher ends. The launcher holds
    the only write end of a pipe and never writes; each rank holds a read end. However the launcher ends, ``kill -9``
    included, the system closes its end, and the read returns. A thread waits for that, so it does not matter what the
    main thread is doing, or whether it ever comes back from it.
    """
    _wake_when_closed(pipe)
    threading.Thread(target=_wait, args=(pipe, folder), name="lifeline", daemon=True).start()


def _wait(pipe: int, folder: Path) -> None:
    os.read(pipe, 1)
    shutil.rmtree(folder, ignore_errors=True)  # the launcher cannot do it any more
    os.killpg(os.getpgrp(), signal.SIGKILL)  # with the workers of a data loader, and whatever else was started


def _wake_when_closed(pipe: int) -> None:
    """On Linux, let the system continue this process when the pipe is closed: a stopped one has no running threads.

    A descriptor can send a signal of one's choice when something happens on it: fcntl(2), F_SETOWN and F_SETSIG.
    """
    if hasattr(fcntl, "F_SETSIG"):
        with contextlib.suppress(OSError):  # not every emulation of Linux knows it, and only stopped processes need it
            fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGCONT)
            fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)


if __name__ == "__main__":
    main()
