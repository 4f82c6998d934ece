"""A disk in memory that records every call, and gives every state in which a crash may leave it."""

from __future__ import annotations

import copy
import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from ckptdoctor.inplace.disk import Status

# of this file system; a device writes as many bytes whole or not at all
BLOCK = 512


@dataclass
class File:
    """The bytes of one file, which of its blocks are there (the rest are holes), and when it changed last."""

    data: bytearray = field(default_factory=bytearray)
    blocks: set[int] = field(default_factory=set)
    time: int = 0

    def write(self, data: bytes, at: int) -> None:
        """Write, behind the end too."""
        self.size(max(len(self.data), at + len(data)))
        self.data[at : at + len(data)] = data
        self.blocks |= set(range(at // BLOCK, (at + len(data) - 1) // BLOCK + 1)) if data else set()

    def size(self, size: int) -> None:
        """Cut off, or add a hole."""
        if size < len(self.data):
            del self.data[size:]
            self.blocks = {block for block in self.blocks if block * BLOCK < size}
        self.data += bytes(size - len(self.data))

    def shift(self, length: int, gap: int) -> None:
        """Insert at the start, of which only the blocks from ``gap`` on have been shifted so far."""
        old, blocks = bytes(self.data), self.blocks
        count = length // BLOCK
        self.data = bytearray(old[: gap * BLOCK] + bytes(length) + old[gap * BLOCK :])
        if gap * BLOCK >= len(old):  # the size has grown, and no extent was moved
            self.data = bytearray(old + bytes(length))
        self.blocks = {block if block < gap else block + count for block in blocks}

    def close_up(self, offset: int, length: int, gap: int | None) -> None:
        """Collapse; so far only blocks up to ``gap`` have moved, and the size is the old one, unless it is None."""
        first, count = offset // BLOCK, length // BLOCK
        data = bytes(self.data)
        kept = data[:offset] + data[offset + length :]
        self.blocks = {block for block in self.blocks if not first <= block < first + count}
        if gap is None:
            self.data = bytearray(kept)
            self.blocks = {block if block < first else block - count for block in self.blocks}
            return
        at = max(gap * BLOCK, offset)
        self.data = bytearray(kept[:at] + bytes(length) + kept[at:])
        self.blocks = {
            block if block < first or block - count >= at // BLOCK else block - count for block in self.blocks
        }


class MemoryDisk:
    """Files by their paths. ``log`` are the calls that change something; descriptors are the numbers of files."""

    def __init__(self, files: dict[str, File] | None = None) -> None:
        self.files: dict[int, File] = dict(enumerate((files or {}).values()))
        self.paths: dict[str, int] = dict(zip(files or {}, itertools.count()))
        self.log: list[tuple[object, ...]] = []
        self.begin = copy.deepcopy((self.files, self.paths))
        self.locked: set[int] = set()
        self.room: int | None = None
        self.dies_at: int | None = None

    def _say(self, *call: object) -> None:
        if self.dies_at is not None and len(self.log) >= self.dies_at:
            raise Killed
        self.log.append(call)

    def content(self, path: str) -> tuple[bytes, int]:
        """Bytes and time of a file."""
        file = self.files[self.paths[path]]
        return bytes(file.data), file.time

    def open(self, path: str) -> int:
        if path not in self.paths:
            raise FileNotFoundError(path)
        return self.paths[path]

    def create(self, path: str) -> int:
        fd = max(self.files, default=0) + 1
        self._say("create", path, fd)
        self.files[fd], self.paths[path] = File(), fd
        return fd

    def close(self, fd: int) -> None:
        self.locked.discard(fd)

    def lock(self, fd: int) -> bool:
        free = fd not in self.locked
        self.locked.add(fd)
        return free

    def status(self, fd: int) -> Status:
        return Status(1, fd, len(self.files[fd].data), self.files[fd].time)

    def names(self, folder: str) -> list[str]:
        return sorted(os.path.basename(path) for path in self.paths if os.path.dirname(path) == folder)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return bytes(self.files[fd].data[offset : offset + length])

    def pwrite(self, fd: int, data: bytes, offset: int) -> None:
        self._say("pwrite", fd, data, offset)
        self.files[fd].write(data, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._say("truncate", fd, size)
        self.files[fd].size(size)

    def reserve(self, fd: int, offset: int, length: int) -> None:
        if self.room is not None and length > self.room:
            raise OSError(28, "No space left on device")
        self.files[fd].time += 1  # as ext4 does

    def insert(self, fd: int, length: int) -> None:
        assert length % BLOCK == 0
        self._say("insert", fd, length)
        self.files[fd].shift(length, 0)

    def collapse(self, fd: int, offset: int, length: int) -> None:
        assert length % BLOCK == offset % BLOCK == 0
        assert offset + length < len(self.files[fd].data)
        self._say("collapse", fd, offset, length)
        self.files[fd].close_up(offset, length, None)

    def runs(self, fd: int) -> list[tuple[int, int]]:
        file, found = self.files[fd], []
        for block in sorted(file.blocks):
            begin, end = block * BLOCK, min(block * BLOCK + BLOCK, len(file.data))
            if found and found[-1][1] == begin:
                found[-1] = (found[-1][0], end)
            else:
                found.append((begin, end))
        return found

    def set_time(self, fd: int, mtime_ns: int) -> None:
        self._say("time", fd, mtime_ns)
        self.files[fd].time = mtime_ns

    def fsync(self, fd: int) -> None:
        self._say("fsync", fd)

    def fsync_dir(self, folder: str) -> None:
        self._say("fsync_dir")

    def rename(self, old: str, new: str) -> None:
        self._say("rename", old, new)
        self.paths[new] = self.paths.pop(old)

    def unlink(self, path: str) -> None:
        self._say("unlink", path)
        del self.paths[path]

    def clone(self, source: int, target: int) -> bool:
        return False


class Killed(BaseException):
    """The process ends here."""


_OF_FOLDERS = ("create", "rename", "unlink")


def crashed(disk: MemoryDisk, length: int, chances: random.Random, mood: str) -> MemoryDisk:
    """What is on the disk if the machine stops after ``length`` calls.

    What was synced is there. Of the rest any part may be, by ``mood`` none, all, or some: writes torn by sectors, of
    a shift some extents.
    """
    files, paths = copy.deepcopy(disk.begin)
    calls = disk.log[:length]
    synced: dict[object, int] = {}
    for place, call in enumerate(calls):
        if call[0] in ("fsync", "fsync_dir"):
            synced[call[1] if call[0] == "fsync" else "folder"] = place
    for place, call in enumerate(calls):
        kind, target = call[0], "folder" if call[0] in _OF_FOLDERS else call[1] if len(call) > 1 else None
        sure = place < synced.get(target, -1)
        if kind in ("fsync", "fsync_dir"):
            continue
        if kind == "create":
            files[call[2]] = File()
        if sure or mood == "all":
            _apply(files, paths, call)
        elif mood == "some":
            _partly(files, paths, call, chances)
    state = MemoryDisk()
    state.files, state.paths = files, {path: fd for path, fd in paths.items() if fd in files}
    state.begin = copy.deepcopy((state.files, state.paths))
    return state


def _apply(files: dict[int, File], paths: dict[str, int], call: tuple) -> None:
    match call:
        case ("create", path, fd):
            paths[path] = fd
        case ("rename", old, new):
            if old in paths:
                paths[new] = paths.pop(old)
        case ("unlink", path):
            paths.pop(path, None)
        case ("pwrite", fd, data, at):
            files[fd].write(data, at)
        case ("truncate", fd, size):
            files[fd].size(size)
        case ("time", fd, time):
            files[fd].time = time
        case ("insert", fd, length):
            files[fd].shift(length, 0)
        case ("collapse", fd, offset, length):
            files[fd].close_up(offset, length, None)


def _partly(files: dict[int, File], paths: dict[str, int], call: tuple, chances: random.Random) -> None:
    match call:
        case ("pwrite", fd, data, at):
            begin = at
            while begin < at + len(data):
                end = min(begin - begin % BLOCK + BLOCK, at + len(data))
                if chances.random() < 0.5:
                    files[fd].write(data[begin - at : end - at], begin)
                begin = end
        case ("insert", fd, length):
            gap = chances.choice([None, *range(-(-len(files[fd].data) // BLOCK) + 1)])
            if gap is not None:
                files[fd].shift(length, gap)
        case ("collapse", fd, offset, length):
            most = -(-(len(files[fd].data) - length) // BLOCK)
            gap = chances.choice([None, -1, *range(offset // BLOCK, most + 1)])
            if gap != -1:
                files[fd].close_up(offset, length, gap)
        case _:
            if chances.random() < 0.5:
                _apply(files, paths, call)


def crashes(disk: MemoryDisk, chances: random.Random) -> Iterator[MemoryDisk]:
    """States after crashes, without end."""
    yield crashed(disk, len(disk.log), chances, "all")
    while True:
        length = chances.randint(0, len(disk.log))
        yield crashed(disk, length, chances, chances.choice(["none", "all", "some", "some", "some"]))
