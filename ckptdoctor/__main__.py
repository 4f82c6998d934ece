"""``python -m ckptdoctor``, and the ``ckptdoctor`` command."""

from __future__ import annotations

import os
import sys

from ckptdoctor.checkpoint import process
from ckptdoctor.cli.main import run

# what has threads, process groups, a terminal or temporary files to put in order before a process ends
_NEED_GOODBYE = ("torch", "textual", "ckptdoctor.formats.wrapped.scratch")


def main() -> None:
    """Run the command line and end the process with its exit status.

    The contents of a large checkpoint are not taken apart first: freeing 50,000 tensors one by one takes a tenth of
    the whole run, and the system takes all memory back at once.
    """
    process.take()
    status = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    if any(package in sys.modules for package in _NEED_GOODBYE):
        sys.exit(status)
    os._exit(status)


if __name__ == "__main__":
    main()
