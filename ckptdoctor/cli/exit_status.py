"""Lists the exit statuses, by which a process says how it ended."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit statuses of every command."""

    CLEAN = 0
    """Nothing at or above ``--fail-on``; for ``fix``: repaired and verified."""

    FINDINGS = 1
    """Findings at or above ``--fail-on``; for ``fix``: something was refused or is still wrong; for
    ``show --filter``: no tensor matches; for ``latest``: there is no valid checkpoint; for ``watch``: ``--timeout`` has
    passed, or ``--until`` was not reached."""

    TROUBLE = 2
    """Invalid usage, a path that cannot be read or examined, or a bug in ckptdoctor itself."""

    INTERRUPTED = 130
    """Ctrl-C, as shells count it: 128 + SIGINT. What is known so far is printed, and no output is left half written."""
