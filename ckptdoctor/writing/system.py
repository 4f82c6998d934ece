"""Makes calls that not every platform or file system offers: each is tried, and does nothing where it is missing."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from importlib.util import find_spec

from ckptdoctor.checkpoint.source import MOVING

# what a file system says of a call that it does not have, or not for these two files
UNSUPPORTED = frozenset({errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY})
# what FAT, some network file systems and sandboxes answer to link()
NO_LINKS = UNSUPPORTED | {errno.EPERM, errno.EACCES, errno.EMLINK}
# what a directory that cannot be opened or synced answers (Windows, some network file systems)
NO_DIRECTORY_SYNC = UNSUPPORTED | {errno.EACCES, errno.EPERM, errno.EISDIR, errno.EBADF}

BINARY = getattr(os, "O_BINARY", 0)
LOCKS = find_spec("fcntl") is not None  # locks that end with the process that has them; those of Windows are others
_FICLONE = 0x40049409  # linux/fs.h: share all blocks of one file with another


def preallocate(fd: int, size: int) -> bool:
    """Reserve ``size`` bytes for the file. False where the file system cannot; raises OSError on a full disk."""
    if not size or not hasattr(os, "posix_fallocate"):
        return False
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno in UNSUPPORTED:
            return False
        raise
    return True


def clone(source: int, target: int) -> bool:
    """Make ``target`` share every block of ``source`` (btrfs, XFS, bcachefs). False where that cannot be done."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def lock(fd: int) -> bool | None:
    """Lock an open file or folder until it is closed. False where somebody else has; None where there are no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def copy_range(source: int, target: int, count: int, source_offset: int, target_offset: int) -> int:
    """Return how many bytes the kernel copied, at most ``count``, or 0 where it cannot copy these."""
    if not hasattr(os, "copy_file_range"):
        return 0
    try:
        return os.copy_file_range(source, target, count, source_offset, target_offset)
    except OSError as error:
        if error.errno in UNSUPPORTED:
            return 0
        raise


def write_at(fd: int, data: bytes | memoryview, offset: int) -> int:
    """Return how many of the bytes were written at ``offset``: perhaps not all. Raises OSError."""
    if hasattr(os, "pwrite"):
        return os.pwrite(fd, data, offset)
    with MOVING:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.write(fd, data)


def put(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of ``data`` at ``offset``."""
    view, done = memoryview(data), 0
    while done < len(view):
        done += write_at(fd, view[done:], offset + done)


def sync_data(fd: int) -> None:
    """Wait until the file's bytes, and what is needed to find them, are on the disk."""
    getattr(os, "fdatasync", os.fsync)(fd)


def sync_directory(path: str) -> None:
    """Wait until the names in the directory are on the disk, where directories can be synced."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        if error.errno in NO_DIRECTORY_SYNC:
            return
        raise
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(fd)


def free_bytes(directory: str) -> int | None:
    """Return how many bytes may still be written in the directory's file system, or None where it does not say."""
    if not hasattr(os, "statvfs"):
        return None
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


# ---- the original's owner, permissions and extended attributes


def restore(source: int, target: int) -> None:
    """Set owner and group first (changing them clears permission bits), then the mode, then extended attributes."""
    status = os.fstat(source)
    if hasattr(os, "fchown"):
        _chown(target, status)
    if hasattr(os, "fchmod"):
        os.fchmod(target, stat.S_IMODE(status.st_mode))
    _copy_attributes(source, target)


def _chown(target: int, status: os.stat_result) -> None:
    """Set the owner, or at least the group: only root can give files away, so that failing to do it is not an error."""
    with contextlib.suppress(OSError):
        os.fchown(target, -1, status.st_gid)
    with contextlib.suppress(OSError):
        os.fchown(target, status.st_uid, -1)


def _copy_attributes(source: int, target: int) -> None:
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(source)
    except OSError:  # the file system has none
        return
    for name in names:
        # security labels and the like are set by the system itself
        with contextlib.suppress(OSError):
            os.setxattr(target, name, os.getxattr(source, name))
