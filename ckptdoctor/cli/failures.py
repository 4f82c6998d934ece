"""Turns every failure into one line on stderr and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable
from errno import EDQUOT, EFBIG, ENOSPC

from ckptdoctor.cli.console import complain, print_error
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.crash import one_line, wants_trace
from ckptdoctor.errors import CkptDoctorError


def status_of(act: Callable[[], int]) -> int:
    """Return the exit status that ``act`` returns, or that of its failure, which is told on stderr."""
    try:
        return act()
    except CkptDoctorError as error:
        complain(error.message)
    except KeyboardInterrupt:  # where nothing had begun
        return ExitStatus.INTERRUPTED
    except Exception as error:  # the last boundary of the process: a bug in ckptdoctor is status 2, not 1
        if wants_trace():
            raise
        complain(_told(error))
    return ExitStatus.TROUBLE


def _told(error: Exception) -> str:
    # where standard output goes; of files that have names, whoever writes them says it
    if isinstance(error, OSError) and error.filename is None and error.errno in (ENOSPC, EDQUOT, EFBIG):
        return f"The output cannot be written: {error.strerror}."
    return one_line(error)


def tell_interrupt(interrupt: KeyboardInterrupt) -> int:
    """Print the sentence in which Ctrl-C ends a command, which it may have brought along; return the status."""
    behind = "\n" if sys.stderr.isatty() else ""  # the terminal has written ^C
    print_error(f"{behind}{str(interrupt) or 'Interrupted.'}")
    return ExitStatus.INTERRUPTED
