"""Carries out a change in place: reserve, journal, write, sync, verify, commit, in an order that survives any crash.

1. The files are locked, and are what they were when the change was planned. The space for what grows is reserved.
2. The journal is written, synced and named, and its folder synced. Until here nothing has changed.
3. What is inserted comes first and is synced by itself; then the writes; then the file is synced, and its time is set.
4. The files are verified. In any other case the journal takes everything back.
5. The journal gets the name that says that the change is complete, and the folder is synced: that is the commit.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence

from ckptdoctor.checkpoint import FileIdentity, process
from ckptdoctor.errors import CkptDoctorError, RefusedError, WriteError
from ckptdoctor.inplace.change import FileChange
from ckptdoctor.inplace.disk import MOST_RUNS, Disk
from ckptdoctor.inplace.journal import FileRecord, Journal, encode, load, record, store
from ckptdoctor.inplace.names import hot_journal, numbers, place, told, undo_journal
from ckptdoctor.inplace.restoring import restore
from ckptdoctor.noun import noun
from ckptdoctor.writing.system import UNSUPPORTED


@noun
class Done:
    """A change that is complete: its number in the history, and the bytes of files and of the journal written."""

    number: int
    written: int
    journal: int


def change_files(
    disk: Disk,
    path: str,
    changes: Sequence[FileChange],
    known: Sequence[FileIdentity],
    words: Sequence[str],
    verify: Callable[[], None],
) -> Done:
    """Change the files of the checkpoint at ``path``, a file or a folder, together: all of them or none.

    ``known`` is what they were when the change was planned, ``words`` are kept for people. ``verify`` raises to have
    everything taken back. Raises WriteError and RefusedError, and whatever ``verify`` raises: then the files hold what
    they held, unless the message says that the change was interrupted.
    """
    folder, _ = place(path)
    hot = hot_journal(path)
    opened: list[int] = []
    try:
        if os.path.basename(hot) in disk.names(folder):
            raise RefusedError(told(path, path))
        journal = _begun(disk, path, folder, hot, changes, known, words, opened)
        try:
            for fd, change, each in zip(opened, changes, journal.files, strict=True):
                _write(disk, fd, change, each)
            verify()
            process.commit()
            disk.rename(hot, undo_journal(path, journal.number))
        except BaseException as error:
            _take_back(disk, path, folder, hot, opened, error)
            raise
        disk.fsync_dir(folder)
    except OSError as error:
        raise _failed(path, error) from error
    finally:
        while opened:
            disk.close(opened.pop())
    return Done(journal.number, sum([each.written for each in changes]), len(encode(journal)))


def _begun(
    disk: Disk,
    path: str,
    folder: str,
    hot: str,
    changes: Sequence[FileChange],
    known: Sequence[FileIdentity],
    words: Sequence[str],
    opened: list[int],
) -> Journal:
    """Open the files, reserve what they need and put the journal on the disk. Nothing in them has changed then."""
    reserved: list[tuple[int, FileIdentity]] = []
    try:
        for change, was in zip(changes, known, strict=True):
            opened.append(_opened(disk, os.path.join(folder, change.name), was))
        for fd, change, was in zip(opened, changes, known, strict=True):
            disk.fsync(fd)  # what is not on the disk yet cannot be what a crash goes back to
            if not change.inserted:
                reserved.append((fd, was))
                for write in change.writes:
                    disk.reserve(fd, write.at, len(write.data))
        now = time.time_ns()
        files = zip(opened, changes, known, strict=True)
        records = tuple([record(disk, fd, change, was.mtime_ns, now) for fd, change, was in files])
        if not all(map(_can_be_shifted, records)):
            raise RefusedError(f"{path} has too many holes to be shifted as a whole. Write a new file: add -o OUT.")
        number = max(numbers(path, disk.names(folder)), default=0) + 1
        journal = Journal(number, now, tuple(words), records)
        store(disk, journal, hot, sum([change.inserted for change in changes]))
    except BaseException:
        for fd, was in reserved:
            disk.truncate(fd, was.size)
            disk.set_time(fd, was.mtime_ns)
        raise
    return journal


def _can_be_shifted(each: FileRecord) -> bool:
    """Return whether it will be known how far a shift got, by the holes of the file: none where bytes are replaced."""
    end = max([kept.at + len(kept.old) for kept in each.kept], default=0)
    whole = bool(each.runs) and each.runs[0][0] == 0 and each.runs[0][1] >= end
    return not each.inserted or (whole and len(each.runs) <= MOST_RUNS)


def _opened(disk: Disk, path: str, was: FileIdentity) -> int:
    fd = disk.open(path)
    try:
        if not disk.lock(fd):
            raise RefusedError(f"{path} is locked by another process. Wait until that has ended, then try again.")
        _require_same(disk, path, fd, was)
    except BaseException:
        disk.close(fd)
        raise
    return fd


def _write(disk: Disk, fd: int, change: FileChange, each: FileRecord) -> None:
    if change.inserted:
        disk.insert(fd, change.inserted)
        disk.fsync(fd)  # what is written next must not get to the disk before the file is shifted
        disk.reserve(fd, 0, change.inserted)
    for write in change.writes:
        disk.pwrite(fd, write.data, write.at)
    if change.new_size != change.old_size + change.inserted:
        disk.truncate(fd, change.new_size)
    disk.fsync(fd)
    disk.set_time(fd, each.new_time)
    disk.fsync(fd)


def _take_back(disk: Disk, path: str, folder: str, hot: str, opened: list[int], error: BaseException) -> None:
    """Restore the files after what went wrong. Where that fails, too, the journal stays, and the message says so."""
    while opened:
        disk.close(opened.pop())
    try:
        restore(disk, folder, load(disk, hot, path), own=True)
        disk.unlink(hot)
        disk.fsync_dir(folder)
    except (OSError, CkptDoctorError) as trouble:
        raise WriteError(f"{told(path, path)} ({error})") from trouble


def _failed(path: str, error: OSError) -> CkptDoctorError:
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        return WriteError(
            f"Not enough disk space to fix {path} in place; it was left as it is. Make room, or write the repaired "
            "file elsewhere: -o OUT."
        )
    if error.errno in UNSUPPORTED:
        return WriteError(f"{path} cannot be fixed in place on this file system. Write a new file: add -o OUT.")
    return WriteError(
        f"{path} could not be fixed in place: {error.strerror or error}. It was left as it is; write a new file with "
        "-o OUT."
    )


# ---- the same by a clone, where the file system has one: the file gets its new contents with its name, in one step


def change_clone(
    disk: Disk,
    path: str,
    change: FileChange,
    was: FileIdentity,
    words: Sequence[str],
    verify: Callable[[str], None],
) -> Done | None:
    """Change a clone of the file and put it in its place: None where the file system has no clones.

    ``verify`` gets the path of the clone. The journal serves undo alone: it gets its name once the file has it.
    Raises what ``change_files`` raises; then nothing has changed.
    """
    folder, name = os.path.split(os.path.realpath(path))
    temporary = os.path.join(folder, f".{name[:120]}.{os.urandom(6).hex()}.ckptdoctor-tmp{os.path.splitext(name)[1]}")
    opened: list[int] = []
    left = [temporary]
    try:
        if os.path.basename(hot_journal(path)) in disk.names(folder):
            raise RefusedError(told(path, path))
        opened.append(_opened(disk, path, was))
        opened.append(disk.create(temporary))
        if not disk.clone(opened[0], opened[1]):
            return None
        now = time.time_ns()
        kept = record(disk, opened[1], change, was.mtime_ns, now)
        number = max(numbers(path, disk.names(folder)), default=0) + 1
        journal = Journal(number, now, tuple(words), (kept,))
        if change.inserted and not _can_be_shifted(kept):
            raise RefusedError(f"{path} has too many holes to be shifted as a whole. Write a new file: add -o OUT.")
        _write(disk, opened[1], change, kept)
        verify(temporary)
        disk.copy_owner(opened[0], opened[1])
        disk.set_time(opened[1], now)
        disk.fsync(opened[1])
        _require_same(disk, path, opened[0], was)
        process.commit()
        disk.rename(temporary, os.path.realpath(path))
        left.clear()
        disk.fsync_dir(folder)
        store(disk, journal, undo_journal(path, number))
    except OSError as error:
        raise _failed(path, error) from error
    finally:
        for each in left:
            if os.path.basename(each) in disk.names(folder):
                disk.unlink(each)
        while opened:
            disk.close(opened.pop())
    return Done(number, change.written, len(encode(journal)))


def _require_same(disk: Disk, path: str, fd: int, was: FileIdentity) -> None:
    status = disk.status(fd)
    if FileIdentity(status.device, status.inode, status.size, status.mtime_ns) != was:
        raise WriteError(f"{path} changed while it was being repaired; nothing was written. Repair it again.")
