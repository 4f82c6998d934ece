"""Processes that are there at once: forked from one that has imported torch and the trainer, which takes seconds.

They are as real as any other, with a number, a session, signals and an exit status of their own, and so are the ranks
that a launcher among them forks. What they do not show is that such a process can be started from nothing, with only
what its command line and its environment say: some tests of each kind of process start one.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
from multiprocessing import forkserver
from types import SimpleNamespace

from ckptdoctor.trainer.launch import launcher, worker

FORKED = "forkserver"
"""How ``torch.multiprocessing`` starts such processes."""

_SERVED = multiprocessing.get_context(FORKED)
_SERVED.set_forkserver_preload(
    [
        "ckptdoctor.trainer.run",
        "ckptdoctor.trainer.strategies.make",
        "ckptdoctor.trainer.progress.terminal",
        "ckptdoctor.cli.train",
        "torch._dynamo",
        "torch.distributed.checkpoint",
    ]
)


def begin_importing():
    """Start the process that others are forked from now, where the temporary files of this one are now."""
    forkserver.ensure_running()


class Forked:
    """A process that runs ``work(*arguments)`` and ends with what that returns; used as a ``subprocess.Popen``."""

    def __init__(self, work, *arguments, cwd=None, environ=None):
        self._pipes = [_SERVED.Pipe(duplex=False) for _ in ("stdout", "stderr")]
        theirs = [writer for _, writer in self._pipes]
        given = (work, arguments, *theirs, cwd or os.getcwd(), dict(os.environ if environ is None else environ))
        self._process = _SERVED.Process(target=_run, args=given, daemon=True)  # ends with the tests, in any case
        self._process.start()
        self.pid = self._process.pid
        for writer in theirs:
            writer.close()

    @property
    def returncode(self):
        """What it ended with, or minus the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self):
        """The same."""
        return self.returncode

    def send_signal(self, number):
        """To this process, and not to what it started."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self):
        """Without a chance to do anything about it."""
        self._process.kill()

    def communicate(self, timeout=None):
        """What it wrote, when it has ended; TimeoutExpired when that takes longer."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired([str(self._process.name)], timeout)
        return tuple(_drained(reader) for reader, _ in self._pipes)


def _drained(reader):
    """All that is in a pipe, without waiting for those that still hold its other end."""
    os.set_blocking(reader.fileno(), False)
    parts = []
    try:
        while part := os.read(reader.fileno(), 1 << 16):
            parts.append(part)
    except BlockingIOError:
        pass
    reader.close()
    return b"".join(parts).decode()


def _run(work, arguments, stdout, stderr, cwd, environ):
    # what a new process has: children of its own, and started as they usually are
    multiprocessing.current_process().daemon = False
    multiprocessing.set_start_method(None, force=True)
    os.setsid()
    for pipe, number in ((stdout, 1), (stderr, 2)):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    os.chdir(cwd)
    _settle(environ)
    sys.exit(work(*arguments))


def _settle(environ):
    os.environ.clear()
    os.environ.update(environ)
    tempfile.tempdir = None


def fork_ranks():
    """From here on, the launcher in this process forks its ranks instead of starting them."""
    launcher.subprocess = SimpleNamespace(Popen=ForkedRank, DEVNULL=subprocess.DEVNULL)


class ForkedRank:
    """A rank as the launcher starts it, but for its program: that goes on from what the launcher has imported."""

    def __init__(self, command, *, env, stdin, stdout, stderr, pass_fds, start_new_session):
        assert command == [sys.executable, "-m", worker.__name__] and stdin == subprocess.DEVNULL and start_new_session
        self.returncode = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                if stdout is not None:
                    os.dup2(stdout.fileno(), 1)
                os.dup2(stderr.fileno(), 2)
                _close_all_but({0, 1, 2, *pass_fds})
                _settle(env)
                worker.main()
            finally:
                os._exit(70)

    def poll(self):
        """What it ended with, if it has."""
        return self._wait(os.WNOHANG)

    def wait(self):
        """What it ended with, when it has."""
        return self._wait(0)

    def send_signal(self, number):
        """To this process, and not to what it started."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _wait(self, options):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _close_all_but(kept):
    """As in a program that was started anew; above all the launcher's ends of the lifelines of other ranks."""
    for number in map(int, os.listdir("/dev/fd")):
        if number not in kept:
            with contextlib.suppress(OSError):  # of the one that listed the others
                os.close(number)
