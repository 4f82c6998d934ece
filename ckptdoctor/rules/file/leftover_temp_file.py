"""A download or a save was not finished: its temporary file is here.

Meaning
    Programs write a file under another name until it is complete: ``.incomplete``, ``.part``, ``.crdownload``,
    ``.tmp``. Either this is such a file, or one is next to the checkpoint.

Why it matters
    The temporary file is not complete. A newer one next to the checkpoint means that a later save or download did not
    finish, so the checkpoint is older than you may think. aria2 (``.aria2``) gives the file its full length at once and
    fills it in: while its control file is there, parts of the checkpoint are zeros.

Symptoms
    Nothing, or the words for a truncated file.

Detection
    The names in the file's folder.

Repair
    None: let the download or the save finish, or delete the temporary file. Info only, except for the control file of
    aria2.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Container
from ckptdoctor.facts.siblings import CONTROL, Folder, Sibling, folder_of, suffix_of_unfinished, unfinished_beside
from ckptdoctor.findings import Severity
from ckptdoctor.noun import noun
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.when import unfinished

_MODEL = {"w": T((3,))}
SICK = (
    Example("an unfinished download", _MODEL, suffix=".pt.incomplete"),
    Example("one next to the checkpoint", _MODEL, name="model.pt", beside={"model.pt.tmp": b"PK"}),
    Example("aria2 is not done", _MODEL, name="model.pt", beside={"model.pt.aria2": b"\0\1"}),
)
HEALTHY = (
    Example("a finished file", _MODEL),
    Example("the leftover of another file", _MODEL, name="model.pt", beside={"other.pt.tmp": b"PK"}),
)


@rule("F013", "leftover-temp-file", Severity.INFO, when=unfinished)
def leftover_temp_file(container: Container) -> Iterator[Problem]:
    """Report names that unfinished files have."""
    folder = folder_of(container.path)
    suffix = suffix_of_unfinished(folder.name)
    if suffix:
        yield Problem(
            message=f'the name ends in "{suffix}", like that of an unfinished file',
            cause="A download or a save was interrupted, or is still running.",
            advice="Use the finished file; if there is none, download or save it again.",
        )
    for each in _leftovers(folder):
        yield _beside(each)


def _beside(leftover: _Leftover) -> Problem:
    file = leftover.file
    if leftover.control:
        return Problem(
            message=f"{file.name} is next to it: the download of this file is not finished",
            cause="Such a downloader gives the file its full length at once; the missing parts are zeros.",
            advice="Let the download finish (start it again with the same command) before you use the file.",
            severity=Severity.WARNING,
        )
    newer = "a newer " if leftover.newer else ""
    return Problem(
        message=f"{newer}{file.name} ({file.size:,} bytes) is next to it, left by a save or a download",
        cause=(
            "A later save or download did not finish, so this file may be older than you think."
            if leftover.newer
            else "It was interrupted before it was done."
        ),
        advice=f"Delete {file.name} once nothing writes to it any more.",
    )


# What downloads and saves that were not finished leave behind: names with a suffix of their own


@noun
class _Leftover:
    """A file next to the checkpoint that belongs to it. ``control``: it says that the checkpoint is incomplete."""

    file: Sibling
    control: bool
    newer: bool


def _leftovers(folder: Folder) -> list[_Leftover]:
    """Return the unfinished files next to the checkpoint, under its name and such a suffix."""
    own = folder.own
    if own is None:
        return []
    found = []
    for name, suffix in unfinished_beside(folder):
        file = folder.file(name)
        if file is not None:
            found.append(_Leftover(file, suffix in CONTROL, file.mtime_ns > own.mtime_ns))
    return found
