"""Runs of small targets, started in every way, and looking at what they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.launch.launcher import launch

ROOT = Path(__file__).parents[3]
TARGETS = "tests.trainer.launch.targets"
GOES_ON = "; the run ended, and goes on from the last complete checkpoint with --resume."

_START = "import sys; from tests.trainer.launch.helpers import main; main(*sys.argv[1:])"


def a_config(out, **changes):
    """A run of two ranks in ``out``."""
    return Config(**{"strategy": "ddp", "world_size": 2, "out": str(out), "timeout": 20.0, **changes})


def run(target, config):
    """Launch a target from this process."""
    return launch(config, target=f"{TARGETS}:{target}")


def main(target, path):
    """Launch a target in a process of its own, with an ending that tests can tell apart."""
    try:
        sys.exit(run(target, Config.from_json(Path(path).read_text())))
    except KeyboardInterrupt:
        sys.exit(130)


def start(target, config, **environ):
    """A process that launches a target, in a session of its own."""
    return _popen(["-c", _START, target, str(written(config))], environ)


def script(target, config, *before, **environ):
    """A process that runs a target as a script, or has it run by the module named ``before``."""
    return _popen([*before, str(ROOT / "tests/trainer/launch/targets.py"), str(written(config)), target], environ)


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
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    STARTED.append(process)
    return process


def written(config):
    """The path of a configuration that another process can read."""
    path = Path(config.out, "config.json")
    path.write_text(config.to_json())
    return path


def wait_for(path, seconds=30.0):
    """Until a file is there."""
    until(path.exists, seconds)


def until(happened, seconds):
    """Until something is true, or the time is up: then the test fails. Returns how long it took."""
    begin = time.monotonic()
    while not happened():
        assert time.monotonic() - begin < seconds, f"not after {seconds} s"
        time.sleep(0.02)
    return time.monotonic() - begin


def pids(out, name="pid"):
    """Of the processes of a run that left their numbers."""
    return [int(path.read_text()) for path in sorted(Path(out).glob(f"{name}-*"))]


def alive(pid):
    """Whether a process is there and not a zombie, which nobody may be left to collect."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:
        return not status.parent.parent.exists() or status.read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def interrupt_when(path, number=signal.SIGINT):
    """Send this process a signal as soon as a file is there, from a thread."""

    def send():
        wait_for(path)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread
