"""Takes changes in place back, the latest first, and lists those that can be."""

from __future__ import annotations

import os

from ckptdoctor.checkpoint.missing import missing
from ckptdoctor.errors import CkptDoctorError, RefusedError, UnreadableError, WriteError
from ckptdoctor.inplace.disk import Disk
from ckptdoctor.inplace.journal import Journal, load, store
from ckptdoctor.inplace.names import (
    changed_together,
    hot_journal,
    interrupted,
    numbers,
    place,
    undo_command,
    undo_journal,
)
from ckptdoctor.inplace.restoring import opened_file, require_complete, restore
from ckptdoctor.noun import noun, replace
from ckptdoctor.wording import system_says


@noun
class UndoReport:
    """What was taken back: a change by its number, ``was_hot`` if it had been interrupted; None: there was nothing."""

    path: str
    journal: Journal | None
    was_hot: bool
    left: int


def require_there(path: str) -> None:
    """Raise MissingFileError, or UnreadableError where the folder with its journals cannot be listed."""
    if not os.path.exists(path):
        raise missing(path)
    try:
        os.listdir(place(path)[0])
    except OSError as error:
        raise UnreadableError(f"{path} cannot be opened: {system_says(error)}") from error


def undo(disk: Disk, path: str) -> UndoReport:
    """Take back the change that was interrupted, or else the last one. Killed at any moment, it can be called again.

    Raises RefusedError where the file is not the one that the journal is about, DamagedError for a damaged journal,
    and WriteError.
    """
    folder, _ = place(path)
    hot = hot_journal(path)
    try:
        names = disk.names(folder)
        done = numbers(path, names)
        was_hot = os.path.basename(hot) in names
        if not was_hot:
            other = interrupted(path)
            if other is not None and other != path:
                raise RefusedError(f"{path} belongs to a change that was interrupted. First: {undo_command(other)}")
            if not done:
                together = changed_together(path) if place(path)[1] else None
                if together is not None:
                    raise RefusedError(
                        f"{path} was fixed together with the other files of its folder, and that can only be undone "
                        f"for all of them: {undo_command(together)}"
                    )
                return UndoReport(path, None, False, 0)
            last = undo_journal(path, done[-1])
            found = _complete(disk, folder, load(disk, last, path))
            if found == load(disk, last, path):
                disk.rename(last, hot)
                disk.fsync_dir(folder)
            else:
                store(disk, found, hot)
        journal = load(disk, hot, path)
        restore(disk, folder, journal)
        copy = undo_journal(path, journal.number)
        if os.path.basename(copy) in disk.names(folder):  # of a file that a clone replaced since
            disk.unlink(copy)
            disk.fsync_dir(folder)
        disk.unlink(hot)
        disk.fsync_dir(folder)
    except OSError as error:
        raise WriteError(
            f"{path} could not be restored: {system_says(error, 'write')} Try again: {undo_command(path)}"
        ) from error
    return UndoReport(path, journal, was_hot, len(done) - (0 if was_hot else 1))


def _complete(disk: Disk, folder: str, journal: Journal) -> Journal:
    """Return the journal of files that are exactly as the change left them; a clone since then is another inode."""
    opened: list[int] = []
    try:
        for record in journal.files:
            opened.append(opened_file(disk, folder, record))
            require_complete(disk, opened[-1], record, folder)
        inodes = [disk.status(fd).inode for fd in opened]
    finally:
        for fd in opened:
            disk.close(fd)
    files = [replace(record, inode=inode) for record, inode in zip(journal.files, inodes, strict=True)]
    return replace(journal, files=tuple(files))


@noun
class Entry:
    """A change that can be taken back, or why it cannot (``trouble``)."""

    number: int
    journal: Journal | None
    trouble: str = ""
    hot: bool = False


def history(disk: Disk, path: str) -> list[Entry]:
    """Return the changes that have a journal, the latest first. Raises OSError."""
    folder, _ = place(path)
    names = disk.names(folder)
    paths = [(number, undo_journal(path, number), False) for number in reversed(numbers(path, names))]
    hot = hot_journal(path)
    found = []
    for number, journal, is_hot in [*([(0, hot, True)] if os.path.basename(hot) in names else []), *paths]:
        try:
            read = load(disk, journal, path)
            found.append(Entry(number or read.number, read, hot=is_hot))
        except CkptDoctorError as error:
            found.append(Entry(number, None, error.message, is_hot))
    return found
