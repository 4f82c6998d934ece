"""Reading open files at any place, also where the system lacks the flags and the call that POSIX has for it."""

from __future__ import annotations

import os
from _thread import allocate_lock

# O_NONBLOCK: opening a FIFO must not wait for a writer; it has no effect on regular files. O_BINARY: Windows would
# otherwise translate line ends and stop at a Ctrl-Z. Each system has only one of the two
READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

_MOVING = allocate_lock()  # threads that read one file must not move its position under each other


def fill_at(fd: int, view: memoryview, offset: int) -> int:
    """Read the bytes at ``offset`` into ``view``: how many there were, fewer or none where the file ends."""
    if hasattr(os, "preadv"):
        return os.preadv(fd, [view], offset)
    data = read_at(fd, len(view), offset)
    view[: len(data)] = data
    return len(data)


def read_at(fd: int, length: int, offset: int) -> bytes:
    """At most ``length`` bytes at ``offset``; fewer, or none, where the file ends. Raises OSError."""
    if hasattr(os, "pread"):
        return os.pread(fd, length, offset)
    with _MOVING:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, length)
