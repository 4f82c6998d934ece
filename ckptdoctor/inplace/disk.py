"""Every call of the system that changes files in place goes through one small port, so that tests can record them.

The order of these calls is what a crash can be survived by: tests replay every prefix of them, and every subset of
what was not yet synced.
"""

from __future__ import annotations

import errno
import os
from typing import Protocol

from ckptdoctor.checkpoint.source import read_at
from ckptdoctor.noun import noun
from ckptdoctor.writing.system import BINARY, UNSUPPORTED, clone, lock, restore, sync_directory, write_at

# linux/falloc.h
_KEEP_SIZE, _COLLAPSE, _INSERT = 0x01, 0x08, 0x20
# runs of data that are listed: a file in more pieces is not shifted as a whole
MOST_RUNS = 10_000


@noun
class Status:
    """What the system knows of an open file."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class Disk(Protocol):
    """What a change in place asks of the system. All raise OSError."""

    def open(self, path: str) -> int:
        """Open a file for reading and writing; never a symbolic link."""

    def create(self, path: str) -> int:
        """Make a new file, locked until it is closed."""

    def close(self, fd: int) -> None:
        """Close it, which gives back its lock."""

    def lock(self, fd: int) -> bool:
        """Lock an open file; False where somebody else has it, or nobody can tell."""

    def status(self, fd: int) -> Status:
        """Return identity, size and time."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Return all of these bytes, fewer only where the file ends."""

    def pwrite(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of these bytes."""

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file off, which also frees what was reserved behind its end."""

    def reserve(self, fd: int, offset: int, length: int) -> None:
        """Get the space for these bytes, whose size and contents stay."""

    def insert(self, fd: int, length: int) -> None:
        """Shift the whole file back by so many bytes, which read as zeros, without copying it."""

    def collapse(self, fd: int, offset: int, length: int) -> None:
        """Take these bytes out of the file, without copying what follows them."""

    def runs(self, fd: int) -> list[tuple[int, int]]:
        """Return where there is data, as begins and ends: the rest are holes."""

    def set_time(self, fd: int, mtime_ns: int) -> None:
        """Set the time of the last change."""

    def fsync(self, fd: int) -> None:
        """Wait until the file is on the disk."""

    def fsync_dir(self, folder: str) -> None:
        """Wait until the names in the folder are."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in the same folder, in one step, whatever had that name."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def clone(self, source: int, target: int) -> bool:
        """Make the new file share every block of the other. False where the file system cannot."""

    def copy_owner(self, source: int, target: int) -> None:
        """Give the new file the other's owner, permissions and extended attributes."""


class SystemDisk:
    """The port to the system itself."""

    def open(self, path: str) -> int:
        """Open a file for reading and writing; never a symbolic link."""
        return os.open(path, os.O_RDWR | BINARY | getattr(os, "O_NOFOLLOW", 0))

    def create(self, path: str) -> int:
        """Make a new file, locked until it is closed."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY, 0o600)
        lock(fd)  # else the next writer in the folder takes it for one that was left behind
        return fd

    def close(self, fd: int) -> None:
        """Close it, which gives back its lock."""
        os.close(fd)

    def lock(self, fd: int) -> bool:
        """Lock an open file; False where somebody else has it, or nobody can tell."""
        return lock(fd) is True

    def status(self, fd: int) -> Status:
        """Return identity, size and time."""
        status = os.fstat(fd)
        return Status(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        return sorted(os.listdir(folder or "."))

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Return all of these bytes, fewer only where the file ends."""
        data = read_at(fd, length, offset)
        while len(data) < length and (more := read_at(fd, length - len(data), offset + len(data))):
            data += more
        return data

    def pwrite(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of these bytes."""
        view = memoryview(data)
        while view:
            written = write_at(fd, view, offset)
            view, offset = view[written:], offset + written

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file off, which also frees what was reserved behind its end."""
        os.ftruncate(fd, size)

    def reserve(self, fd: int, offset: int, length: int) -> None:
        """Get the space for these bytes, whose size and contents stay."""
        try:
            _fallocate(fd, _KEEP_SIZE, offset, length)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise

    def insert(self, fd: int, length: int) -> None:
        """Shift the whole file back by so many bytes, which read as zeros, without copying it."""
        _fallocate(fd, _INSERT, 0, length)

    def collapse(self, fd: int, offset: int, length: int) -> None:
        """Take these bytes out of the file, without copying what follows them."""
        _fallocate(fd, _COLLAPSE, offset, length)

    def runs(self, fd: int) -> list[tuple[int, int]]:
        """Return where there is data, as begins and ends: the rest are holes."""
        found: list[tuple[int, int]] = []
        size, end = os.fstat(fd).st_size, 0
        while end < size and len(found) <= MOST_RUNS:
            try:
                begin = os.lseek(fd, end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole follows
                    break
                raise
            end = os.lseek(fd, begin, os.SEEK_HOLE)
            found.append((begin, end))
        return found

    def set_time(self, fd: int, mtime_ns: int) -> None:
        """Set the time of the last change."""
        os.utime(fd, ns=(os.fstat(fd).st_atime_ns, mtime_ns))

    def fsync(self, fd: int) -> None:
        """Wait until the file is on the disk."""
        os.fsync(fd)

    def fsync_dir(self, folder: str) -> None:
        """Wait until the names in the folder are."""
        sync_directory(folder or ".")

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in the same folder, in one step, whatever had that name."""
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def clone(self, source: int, target: int) -> bool:
        """Make the new file share every block of the other. False where the file system cannot."""
        return clone(source, target)

    def copy_owner(self, source: int, target: int) -> None:
        """Give the new file the other's owner, permissions and extended attributes."""
        restore(source, target)


def _fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    """Call fallocate(2), which Python does not offer. Raises OSError."""
    import ctypes  # hardly any repair needs it

    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if call is None:  # macOS
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while call(fd, mode, offset, length):
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
