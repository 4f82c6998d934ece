"""Takes a change in place back, from any state that a crash can have left the file in.

Before a byte is written, the whole of it is compared with the journal: every sector that the change touches must hold
the old bytes or the new ones, and samples of all the others what they held. Every step may be done again, so that
restoring can be killed at any moment and started again.
"""

from __future__ import annotations

import errno
import os

from ckptdoctor.errors import RefusedError
from ckptdoctor.inplace.disk import Disk
from ckptdoctor.inplace.journal import FileRecord, Journal, digest, sectors
from ckptdoctor.noun import noun

# times that file systems keep: to the nanosecond, 100 of them, a microsecond, a millisecond, one or two seconds
_GRAINS = (1, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)


@noun
class _Shift:
    """How far a file is shifted: bytes from ``gap`` on are ``length`` further back; at ``gap`` is the room between."""

    gap: int
    length: int

    def now(self, at: int) -> int:
        """Return where a byte of the old file is at the moment."""
        return at + self.length if at >= self.gap else at


def restore(disk: Disk, folder: str, journal: Journal, *, own: bool = False) -> None:
    """Make every file what it was before the change. Raises RefusedError before any is written, and OSError.

    The files are those of a hot journal: nobody else may have changed them. ``own`` says that this process has just
    written them, so that bytes which are neither old nor new are a fault of the disk, and are written again.
    """
    opened: list[int] = []
    try:
        for record in journal.files:
            opened.append(opened_file(disk, folder, record))
        shifts = [require_hot(disk, fd, record, folder, own) for fd, record in zip(opened, journal.files, strict=True)]
        for fd, record, shift in zip(opened, journal.files, shifts, strict=True):
            _restore(disk, fd, record, shift)
    finally:
        for fd in opened:
            disk.close(fd)


def opened_file(disk: Disk, folder: str, record: FileRecord) -> int:
    """Open and lock a file of a journal. Raises RefusedError where another process has it, and OSError."""
    path = os.path.join(folder, record.name)
    try:
        fd = disk.open(path)
    except FileNotFoundError as error:
        raise RefusedError(f"{path} is missing, so nothing was restored. Put it back under its name first.") from error
    if not disk.lock(fd):
        disk.close(fd)
        raise RefusedError(f"{path} is locked by another process. Wait until that has ended, then try again.")
    return fd


def _restore(disk: Disk, fd: int, record: FileRecord, shift: _Shift | None) -> None:
    if shift is not None:
        if shift.gap >= record.old_size:
            disk.truncate(fd, record.old_size)
        else:
            _collapse(disk, fd, record, shift)
        disk.fsync(fd)
    for kept in record.kept:
        disk.pwrite(fd, kept.old, kept.at)
    disk.truncate(fd, record.old_size)
    disk.fsync(fd)
    disk.set_time(fd, record.old_time)
    disk.fsync(fd)


def _collapse(disk: Disk, fd: int, record: FileRecord, shift: _Shift) -> None:
    """Take the inserted blocks out. Raises RefusedError for a copy on a file system that cannot."""
    try:
        disk.collapse(fd, shift.gap, shift.length)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        raise RefusedError(
            f"{record.name} was copied to a file system that cannot take blocks out of it, so nothing is restored. "
            "Copy it and its journal to one that can (ext4, XFS), and undo the change there."
        ) from error


# ---- whether a file is the one that the journal is about


def require_complete(disk: Disk, fd: int, record: FileRecord, folder: str) -> None:
    """Raise RefusedError unless the file is exactly as the change left it, as far as can be told without its values."""
    path, status = os.path.join(folder, record.name), disk.status(fd)
    times = {record.new_time - record.new_time % grain for grain in _GRAINS}
    if status.size != record.new_size or status.mtime_ns not in times:
        raise RefusedError(f"{path} changed after it was fixed in place, so the fix cannot be undone.")
    shift = _Shift(0, record.inserted) if record.inserted else None
    for kept in record.kept:
        for (begin, end), new in zip(sectors(kept.at, kept.at + len(kept.old)), kept.new, strict=True):
            stop = min(end + record.inserted, record.new_size)
            if digest(disk.pread(fd, max(stop - begin - record.inserted, 0), begin + record.inserted)) != new:
                raise RefusedError(f"{path} changed after it was fixed in place, so the fix cannot be undone.")
    if not _samples_agree(disk, fd, record, shift):
        raise RefusedError(f"{path} changed after it was fixed in place, so the fix cannot be undone.")


def require_hot(disk: Disk, fd: int, record: FileRecord, folder: str, own: bool) -> _Shift | None:
    """Return how far the file is shifted. Raises RefusedError unless it is between the old and the new one.

    It may be a copy, with a copy of the journal. A copy has its data elsewhere than the file had, which tells nothing
    of how far a shift got: only a complete one is known by what is there.
    """
    path, status = os.path.join(folder, record.name), disk.status(fd)
    other = RefusedError(
        f"{path} is not the file that was being fixed in place, so nothing is restored. Use another copy of it."
    )
    shift = None
    if record.inserted:
        copied = status.inode != record.inode
        if status.size == record.old_size + record.inserted:
            shift = _Shift(0, record.inserted) if copied else _shift(disk.runs(fd), record)
        if shift is None and status.size != record.old_size:
            raise other
    elif not min(record.old_size, record.new_size) <= status.size <= max(record.old_size, record.new_size):
        raise other
    if not (own or _sectors_agree(disk, fd, record, shift)) or not _samples_agree(disk, fd, record, shift):
        raise other
    return shift


def _sectors_agree(disk: Disk, fd: int, record: FileRecord, shift: _Shift | None) -> bool:
    """Return whether each sector that the change touches holds what it held or what it was to hold."""
    for kept in record.kept:
        for (begin, end), new in zip(sectors(kept.at, kept.at + len(kept.old)), kept.new, strict=True):
            at = begin if shift is None else shift.now(begin)
            found = disk.pread(fd, end - begin, at)
            old = kept.old[begin - kept.at : end - kept.at]
            cut = max(min(record.new_size - begin - record.inserted, end - begin), 0)
            head, tail = found[:cut], found[cut:]
            if head != old[:cut] and digest(head) != new:
                return False
            # behind the end of a file that became shorter, and is made longer again, there may be nothing yet
            if tail != old[cut : cut + len(tail)] and any(tail):
                return False
    return True


def _samples_agree(disk: Disk, fd: int, record: FileRecord, shift: _Shift | None) -> bool:
    for sample in record.samples:
        at, length = sample.at, sample.length
        if shift is None or not at < shift.gap < at + length:
            found = disk.pread(fd, length, at if shift is None else shift.now(at))
        else:
            head = shift.gap - at
            found = disk.pread(fd, head, at) + disk.pread(fd, length - head, shift.gap + shift.length)
        if digest(found) != sample.digest:
            return False
    return True


# ---- how far a shift got: the later extents have moved, the earlier have not, and between them is a hole


def _shift(present: list[tuple[int, int]], record: FileRecord) -> _Shift | None:
    """Return it, from where there is data now and where there was; None where the two do not go together."""
    length, old = record.inserted, record.runs
    behind = [(max(begin, length), end) for begin, end in present if end > length]
    if behind == [(begin + length, end + length) for begin, end in old]:
        return _Shift(0, length)  # complete: what is in front of it may be there or not
    for gap in _gaps(present, old, record.old_size):
        if _runs_at(old, gap, length) == present:
            return _Shift(gap, length)
    if _ends_alike(present, old, record.old_size):
        return _Shift(record.old_size, length)
    return None


def _gaps(present: list[tuple[int, int]], old: tuple[tuple[int, int], ...], size: int) -> list[int]:
    """Return where the first difference between the two may come from: at most a few places."""
    for index, (begin, end) in enumerate(old):
        if index >= len(present):
            return [begin]
        if present[index] != (begin, end):
            return [begin, present[index][1]]
    return [size]


def _runs_at(old: tuple[tuple[int, int], ...], gap: int, length: int) -> list[tuple[int, int]]:
    """Return where data is if the old file is shifted from ``gap`` on."""
    found = []
    for begin, end in old:
        if begin < gap:
            found.append((begin, min(end, gap)))
        if end > gap:
            found.append((max(begin, gap) + length, end + length))
    return found


def _ends_alike(present: list[tuple[int, int]], old: tuple[tuple[int, int], ...], size: int) -> bool:
    """Return whether nothing is shifted yet, and only the size has grown: the last block is data to its end then."""
    if len(present) != len(old) or not old:
        return list(old) == present
    return list(old[:-1]) == present[:-1] and (
        present[-1][0] == old[-1][0] and (present[-1][1] == old[-1][1] or present[-1][1] >= size == old[-1][1])
    )
