"""Lists the checkpoints of a folder that somebody can choose from, and says what checking them found."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ckptdoctor import formats
from ckptdoctor.checkpoint.natural import naturally
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.examine.file import check
from ckptdoctor.examine.paths import expand
from ckptdoctor.findings import Severity
from ckptdoctor.rendering.numbers import plural
from ckptdoctor.tui.models.history import recent

_HOUR, _DAY = 3600, 86_400
_RECENT = 9  # files that were opened before are listed


@dataclass(frozen=True, slots=True)
class Choice:
    """A file, or a folder that is one checkpoint: its name in the folder, its bytes, and when it was last written."""

    path: str
    name: str
    nbytes: int
    written: float


@dataclass(frozen=True, slots=True)
class Opinion:
    """What checking the headers of a file says, in few words, and how it looks."""

    said: str
    look: str
    short: str = ""  # the same on a phone


def is_to_be_chosen_from(path: str) -> bool:
    """Return whether the path is a folder and not itself a checkpoint."""
    return os.path.isdir(path) and formats.examine_directory(path) is None


def choices(folder: str) -> list[Choice]:
    """Return the checkpoints in a folder and below it, in natural order: work for a thread.

    Raises UsageError where there is none.
    """
    paths = list(map(os.path.normpath, expand([folder])))
    names = [os.path.relpath(path, folder) for path in paths]
    return [_choice(paths[place], names[place]) for place in naturally(names)]


def opened_before(folder: str) -> list[Choice]:
    """Return the files that were opened last and are elsewhere: work for a thread."""
    here, home = os.path.join(os.path.abspath(folder), ""), os.path.join(os.path.expanduser("~"), "")
    elsewhere = [path for path in recent() if not path.startswith(here)][:_RECENT]
    return [_choice(path, f"~/{path[len(home) :]}" if path.startswith(home) else path) for path in elsewhere]


def _choice(path: str, name: str) -> Choice:
    try:
        status = os.stat(path)
        inside = [os.path.join(path, each) for each in os.listdir(path)] if os.path.isdir(path) else []
        nbytes = sum([os.path.getsize(each) for each in inside]) if inside else status.st_size
    except OSError:  # it has gone since the folder was listed
        return Choice(path, name, 0, 0.0)
    return Choice(path, name, nbytes, status.st_mtime)


def now(choice: Choice) -> Choice:
    """Return the same choice with the size and time that it has by now."""
    return _choice(choice.path, choice.name)


def opinion(path: str) -> Opinion:
    """Return the verdict on a file, by its headers: work for a thread."""
    try:
        report = check(path)
    except CkptDoctorError:
        return Opinion("cannot be read", "error")
    counts = Counter([finding.severity for finding in report.findings])
    if report.error is not None:
        return Opinion("cannot be read", "error")
    for severity in (Severity.ERROR, Severity.WARNING):
        if counts[severity]:
            return Opinion(plural(counts[severity], severity.value), severity.value)
    return Opinion("✓ no problems in headers", "success", "✓ headers")


def age(seconds: float) -> str:
    """Return how long ago that was: ``5 min ago``, ``3 h ago``, ``12 days ago``."""
    whole = max(0, int(seconds))
    if whole < _HOUR:
        return f"{whole // 60} min ago" if whole >= 60 else "just now"
    return f"{whole // _HOUR} h ago" if whole < _DAY else f"{plural(whole // _DAY, 'day')} ago"


def matching(found: Sequence[Choice], typed: str) -> list[Choice]:
    """Return those whose names have every word that was typed."""
    words = typed.lower().split()
    return [each for each in found if all(word in each.name.lower() for word in words)]
