"""Begins the command line: a check of paths alone, the most common one, needs no parser of options.

The parser (click) and what it imports take a quarter of the time in which a small file is checked.
"""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint import process
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.failures import status_of, tell_interrupt


def run(words: Sequence[str]) -> int:
    """Run the command line that these words are; returns the exit status."""
    if not _is_plain_check(words):
        from ckptdoctor.cli.main import run

        return run(words)
    process.collect_seldom()
    return status_of(lambda: _check(tuple(words[1:])))


def _is_plain_check(words: Sequence[str]) -> bool:
    """Return whether the command line is ``check`` with paths and no option, which have to be parsed."""
    return len(words) > 1 and words[0] == "check" and not any(word.startswith("-") for word in words)


def _check(paths: tuple[str, ...]) -> int:
    from ckptdoctor.cli.check_paths import check_paths

    try:
        return check_paths(paths)
    except KeyboardInterrupt as interrupt:
        return tell_interrupt(interrupt)
    except BrokenPipeError:  # whoever read the output has gone; nothing is flushed any more, as click has it
        process.leave(ExitStatus.FINDINGS)
