"""What downloads and saves that were not finished leave behind: names with a suffix of their own."""

from __future__ import annotations

from ckptdoctor.facts.siblings import Folder, Sibling
from ckptdoctor.noun import noun

# suffixes that programs give to a file until it is whole (browsers, huggingface_hub, wget, curl, rsync, editors)
SUFFIXES = (
    *(".incomplete", ".part", ".partial", ".crdownload", ".download", ".opdownload", ".filepart", ".unconfirmed"),
    *(".tmp", ".temp", "~"),
)
# aria2 keeps this beside a file that has its full length but not all its bytes; DownThemAll writes .dtapart
_CONTROL = (".aria2", ".st")


@noun
class Leftover:
    """A file beside the checkpoint that belongs to it. ``control``: it says that the checkpoint is not whole yet."""

    file: Sibling
    control: bool
    newer: bool


def own_suffix(name: str) -> str:
    """The suffix by which the file itself is one that was not finished; "" where it is none."""
    lower = name.lower()
    return next((suffix for suffix in SUFFIXES if lower.endswith(suffix) and len(name) > len(suffix)), "")


def leftovers(folder: Folder) -> list[Leftover]:
    """The unfinished files beside the checkpoint, under its name and such a suffix."""
    own = folder.own
    if own is None:
        return []
    found = []
    for suffix in (*_CONTROL, *SUFFIXES):
        for name in (f"{own.name}{suffix}", f".{own.name}{suffix}"):
            file = folder.file(name)
            if file is not None:
                found.append(Leftover(file, suffix in _CONTROL, file.mtime_ns > own.mtime_ns))
    return found
