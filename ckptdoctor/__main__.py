"""``python -m ckptdoctor``, and the ``ckptdoctor`` command."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import FrameType
from typing import TextIO

_INTERRUPTED = 130  # cli.exit_status, which is not imported yet


def main() -> None:
    """Run the command line and end the process with its exit status.

    Nothing is taken apart first: the system takes everything back at once. Freeing 50,000 tensors one by one takes a
    tenth of a whole run, and an interpreter that ends under a thread in machine code (torch, zlib) crashes with it.
    The trainer's processes, whose own workers wait for them, end as any other does.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _before_anything)
    from ckptdoctor.checkpoint import process
    from ckptdoctor.cli.start import run

    status = None
    try:
        process.take()
        _open_closed()
        status = run(sys.argv[1:])
        _flush(sys.stdout)
        _flush(sys.stderr)
    except KeyboardInterrupt:  # in one of the moments around the command, which deals with all others
        process.leave(_INTERRUPTED if status is None else status)
    if "ckptdoctor.trainer" in sys.modules:
        sys.exit(status)
    if not process.wants_end():
        atexit._run_exitfuncs()  # those of the user's own code, which --model runs
    process.leave(status)


def _open_closed() -> None:
    """Let what a daemon, or ``>&-``, has closed be as if it was ``/dev/null``: no file that is opened takes its place.

    In this order each gets the number that it had: the lowest that is free.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 it stays open


def _flush(stream: TextIO) -> None:
    """Write what the stream still holds. Where its disk is full, of which ``run`` has told, it goes nowhere.

    Python would try once more at the end, fail, and have a status of its own for that.
    """
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _before_anything(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C while the command line is still being loaded."""
    os._exit(128 + number)


if __name__ == "__main__":
    main()
