"""``ckptdoctor`` as a shell starts it: exit status, output, directory and environment; and its commands in process."""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import errno
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from unittest import mock

import pytest

from tests.command_server import LARGEST

ROOT = Path(__file__).parents[1]

# seconds until a process is taken to hang: less than pytest gives a test, so that what it was asked is told. How soon a
# process ends is another question: a busy machine takes a minute to start one
PATIENCE = 200


def run(*arguments, cwd, stdin=None, env=None, timeout=PATIENCE):
    """``ckptdoctor`` with these arguments; its output as bytes. Where the system can, a fork of ``command_server``."""
    words = [str(each) for each in arguments]
    if not hasattr(socket, "send_fds") or sys.platform != "linux":
        return run_anew(*words, cwd=cwd, stdin=stdin, env=env, timeout=timeout)
    request = {"arguments": words, "directory": str(cwd), "environment": dict(os.environ if env is None else env)}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaint, _pipe(stdin) as given:
        status = _asked(request, [given.fileno(), output.fileno(), complaint.fileno()], timeout)
        output.seek(0)
        complaint.seek(0)
        return subprocess.CompletedProcess(["ckptdoctor", *words], status, output.read(), complaint.read())


def run_here(*arguments, cwd, stdin=b""):
    """The same within this process: for what is asked of a command, and nothing of its process."""
    from ckptdoctor.cli.main import run as run_command

    words = [str(each) for each in arguments]
    given, output = (io.TextIOWrapper(io.BytesIO(data), encoding="utf-8") for data in (stdin, b""))
    complaint = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    before = os.getcwd()
    os.chdir(cwd)
    try:
        with (
            mock.patch.object(sys, "stdin", given),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(complaint),
        ):
            status = int(run_command(words))
    finally:
        os.chdir(before)
    for stream in (output, complaint):
        stream.flush()
    return subprocess.CompletedProcess(
        ["ckptdoctor", *words], status, output.buffer.getvalue(), complaint.buffer.getvalue()
    )


def run_anew(*arguments, cwd, stdin=None, env=None, timeout=PATIENCE, **options):
    """The same in a new interpreter: for what a process does before its first import, and for limits set on it."""
    line = [sys.executable, "-m", "ckptdoctor", *map(str, arguments)]
    given = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    given |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(line, cwd=cwd, env=env, timeout=timeout, check=False, **given)


with_modes = pytest.mark.skipif(
    sys.platform == "win32" or (sys.platform != "linux" and os.geteuid() == 0),
    reason="Windows has no such modes, and only on Linux can root give up that nothing is forbidden to it",
)


_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2  # linux/prctl.h, linux/capability.h


def as_others_may():
    """Give up what lets root read everything."""
    if os.geteuid() == 0:
        call = ctypes.CDLL(None).prctl
        assert not [each for each in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH) if call(_PR_CAPBSET_DROP, each, 0, 0, 0)]


def leave_gloo():
    """End a process that worked together with others, as the trainer ends its ranks.

    The usual end of an interpreter aborts now and then where threads of autograd are still there (pytorch#90549).
    """
    dist = sys.modules["torch.distributed"]
    dist.barrier()  # the one that is ready first must not close the other's connection
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _pipe(data):
    """What a process reads as its standard input: nothing, or a pipe out of which these bytes come."""
    if data is None:
        return open(os.devnull, "rb")
    reading, writing = os.pipe()

    def feed():
        with open(writing, "wb") as pipe:
            try:
                pipe.write(data)
            except BrokenPipeError:
                return  # the process ended before it had read everything

    threading.Thread(target=feed, daemon=True).start()
    return open(reading, "rb")


def _asked(request, descriptors, timeout):
    message = json.dumps(request).encode()
    assert len(message) < LARGEST, "the arguments and the environment of a command are too long for one request"
    server = _server()
    socket.send_fds(server, [message], descriptors)
    (child,) = array.array("q", server.recv(8))
    server.settimeout(timeout)
    try:
        (status,) = array.array("q", server.recv(8))
    except TimeoutError:
        os.kill(child, signal.SIGKILL)
        server.settimeout(None)
        server.recv(8)
        raise subprocess.TimeoutExpired(request["arguments"], timeout) from None
    finally:
        server.settimeout(None)
    return status


@cache
def _server():
    """The connection to the server of this run of tests, which is started by the first test that needs it.

    All workers share one: to import everything takes it four seconds.
    """
    address = f"\0ckptdoctor-tests-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        try:
            listening.bind(address)
        except OSError:  # another worker was first
            process = None
        else:
            listening.listen(64)
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.command_server", str(listening.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
            )
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while ours.connect_ex(address) == errno.ECONNREFUSED:
        time.sleep(0.01)  # it is about to listen

    def end():
        ours.close()
        if process is not None and "PYTEST_XDIST_TESTRUNUID" not in os.environ:
            process.wait()

    atexit.register(end)
    return ours
