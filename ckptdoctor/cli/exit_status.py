"""Lists the exit statuses, by which a process says how it ended."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit statuses of every command."""

    CLEAN = 0
    """Nothing at or above ``--fail-on``; for ``fix``: repaired and verified."""

    FINDINGS = 1
    """Findings at or above ``--fail-on``; for ``fix``: something asked for was refused or remains; for
    ``show --filter``: no tensor matches."""

    TROUBLE = 2
    """The request makes no sense, a path cannot be read or examined, or ckptdoctor itself failed."""

    INTERRUPTED = 130
    """Ctrl-C, as shells count it: 128 + SIGINT. What is known so far is printed, and no output is half written."""
