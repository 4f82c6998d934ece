"""Runs of small targets, started in every way, and looking at what they leave.

Those that are forked (see ``forks``) are there at once; ``run``, ``start`` and ``script`` start all from nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.launch import contact, launcher
from ckptdoctor.trainer.launch.launcher import launch
from ckptdoctor.trainer.launch.reports import RankReport
from tests.trainer.forks import Forked, fork_ranks
from tests.trainer.launch import targets

ROOT = Path(__file__).parents[3]
TARGETS = "tests.trainer.launch.targets"
GOES_ON = "; the run ended; continue from the last complete checkpoint with --resume."

SAID = "launcher.json"
"""In the folder of a run: what its launcher ended with."""

_START = "import sys; from tests.trainer.launch.helpers import main; main(*sys.argv[1:])"


def a_config(out, **changes):
    """A run of two ranks in ``out``."""
    return RunConfig(**{"strategy": "ddp", "world_size": 2, "out": str(out), "timeout": 20.0, **changes})


def run(target, config):
    """Launch a target from this process."""
    return launch(config, target=f"{TARGETS}:{target}")


def main(target, path):
    """Launch a target in a process of its own, with an ending that tests can tell apart; a sentence is left there."""
    config = RunConfig.from_json(Path(path).read_text())
    try:
        sys.exit(run(target, config))
    except KeyboardInterrupt:
        sys.exit(130)
    except CkptDoctorError as error:
        RankReport.of(error).write(Path(config.out, SAID))
        sys.exit(2)


def start(target, config, **environ):
    """A process that launches a target, in a session of its own."""
    return _popen(["-c", _START, target, str(written(config))], environ)


def script(target, config, *before, **environ):
    """A process that runs a target as a script, or has it run by the module named ``before``."""
    return _popen([*before, targets.__file__, str(written(config)), target], environ)


def fork(target, config):
    """What ``start`` starts, forked."""
    return _kept(Forked(_fork, target, str(written(config)), cwd=ROOT))


def run_forked(target, config):
    """What ``run`` does, forked: the error of the launcher is raised here."""
    ended(fork(target, config), config)


def ended(process, config):
    """Nothing when a forked launcher ends well; the error that it ended with otherwise."""
    _, said = process.communicate(timeout=30)
    if report := RankReport.read(Path(config.out, SAID)):
        raise report.error()
    assert process.returncode == 0, said


def fork_script(target, config, **environ):
    """What ``script`` starts, forked."""
    return _kept(Forked(_fork_script, str(written(config)), target, cwd=ROOT, environ={**os.environ, **environ}))


def _fork(target, path):
    fork_ranks()
    # a busy machine needs seconds to notice that a rank is gone; these ranks have nothing more to notice
    launcher._GRACE = launcher._PATIENCE = 0.3
    main(target, path)


def _fork_script(path, target):
    genuine = contact.missing_ranks
    contact.missing_ranks = lambda store, place: genuine(store, place, wait=0.5)
    return targets.main(path, target)


STARTED = []
"""Processes that a test started; after it they are ended, however it went."""


def end_all():
    """End what a failed test left running; the ranks go with their launchers."""
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.communicate()


def _popen(arguments, environ):
    return _kept(
        subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    )


def _kept(process):
    STARTED.append(process)
    return process


def written(config):
    """The path of a configuration that another process can read, also while the next one is given the same."""
    path = Path(config.out, "config.json")
    new = path.with_suffix(".new")
    new.write_text(config.to_json())
    new.replace(path)  # whoever reads it meanwhile has it whole
    return path


def wait_for(path, seconds=120.0):
    """Until a file is there, which may take as long as it takes a busy machine to import torch in each rank."""
    until(path.exists, seconds)


def until(happened, seconds):
    """Until something is true, or the time is up: then the test fails."""
    begin = time.monotonic()
    while not happened():
        assert time.monotonic() - begin < seconds, f"not after {seconds} s"
        time.sleep(0.02)


def pids(out, name="pid"):
    """Of the processes of a run that left their numbers."""
    return [int(path.read_text()) for path in sorted(Path(out).glob(f"{name}-*"))]


def alive(pid):
    """Whether a process is there and not a zombie, which nobody may be left to collect."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path("/proc/self").exists() or _state(pid) not in "ZX"


def suspended(pid):
    """Whether a process is stopped; where the system does not say so, it is after a moment."""
    if Path("/proc/self").exists():
        return _state(pid) == "T"
    time.sleep(0.3)
    return True


def _state(pid):
    """The letter for what a process does; that of one that has ended where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
