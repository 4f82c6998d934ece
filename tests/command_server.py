"""A process that has imported what commands need; each command of a test is a fork of it, and so a real process.

``python -m ckptdoctor`` takes half a second of which most is imports, and two where it needs torch. A fork has its own
exit status, standard streams, directory, environment and end of the interpreter, and takes a twentieth of that.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import sys
import threading
import weakref

# what has a process of its own, and what imports a library that may not be there
_NOT_IMPORTED = ("ckptdoctor.tui", "ckptdoctor.trainer", "ckptdoctor.__main__", "ckptdoctor.integrations")
LARGEST = 1 << 17  # bytes of a request: arguments, directory and environment


def connected(listening: socket.socket) -> socket.socket | None:
    """In a fork for each process that connects, the connection to it; None when the last of them is gone."""
    listening.settimeout(1.0)
    forks = 0
    while True:
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            while forks and os.waitpid(-1, os.WNOHANG)[0]:
                forks -= 1
            if not forks:
                return None
            continue
        _, user, _ = array.array("i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user == os.getuid():
            forks += 1
            if not os.fork():
                listening.close()
                connection.settimeout(None)
                return connection
        connection.close()


def serve(connection: socket.socket) -> list[str] | None:
    """Answer requests until the other side is gone; in a child, return the arguments of its command."""
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(connection, LARGEST, 3)
        except ConnectionResetError:  # it ended without closing anything
            return None
        if not message:
            return None
        child = os.fork()
        if not child:
            connection.close()
            return _become(json.loads(message), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(array.array("q", [child]))
        _, status = os.waitpid(child, 0)
        connection.send(array.array("q", [os.waitstatus_to_exitcode(status)]))


def _become(request: dict, descriptors: list[int]) -> list[str]:
    """Take over the streams, the directory and the environment that a new process would have been started with."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.path[0] = request["directory"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    for number, name, mode in ((0, "stdin", "rb"), (1, "stdout", "wb"), (2, "stderr", "wb")):
        before = getattr(sys, name)
        stream = io.TextIOWrapper(
            open(number, mode, closefd=False),  # noqa: SIM115 - it is the process's until it ends
            encoding=encoding or before.encoding,
            errors="backslashreplace" if name == "stderr" else errors or before.errors,
            line_buffering=name == "stderr",
        )
        setattr(sys, name, stream)
    return request["arguments"]


def import_everything() -> None:
    """Import the commands and the rules, and what is large and needed by some of them."""
    import rich.console
    import torch.library

    import ckptdoctor
    from ckptdoctor.rules.registry import all_rules

    for module in pkgutil.walk_packages(ckptdoctor.__path__, "ckptdoctor."):
        if not module.name.startswith(_NOT_IMPORTED):
            importlib.import_module(module.name)
    assert all_rules() and rich.console
    for each in list(weakref.finalize._registry):
        if each.peek()[1] is torch.library._del_library:
            each.atexit = False  # 60 ms at the end of each command, of which nothing can be seen
    gc.collect()
    gc.freeze()


def main() -> None:
    """Serve whoever connects to the socket whose descriptor is the only argument: all workers of a run of tests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the test run's; it closes the connections
    listening = socket.socket(fileno=int(sys.argv[1]))
    import_everything()
    connection = connected(listening)
    arguments = serve(connection) if connection is not None else None
    if arguments is not None:
        from ckptdoctor.__main__ import main as command

        sys.argv = ["ckptdoctor", *arguments]
        try:
            command()
        except SystemExit as ended:
            _leave(ended.code)


def _leave(status: int) -> None:
    """End as an interpreter does, but for taking torch apart, which takes most of the time."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
