"""Puts the bytes of a recipe into the output file: long ranges by the kernel, the rest block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import accumulate

from ckptdoctor.checkpoint import FileIdentity
from ckptdoctor.checkpoint.source import read_at
from ckptdoctor.errors import WriteError
from ckptdoctor.wording import plural, system_says
from ckptdoctor.writing.recipe import Copy, Literal, Recipe, Segment
from ckptdoctor.writing.system import BINARY, clone, copy_range, preallocate, write_at

_AT_ONCE = 32 << 20  # bytes that the kernel copies in one call: between two calls an interrupt is answered
_WORTH_CLONING = 16 << 20  # shorter outputs are as quickly copied


def reserve(recipe: Recipe, files: Originals, target: int) -> bool:
    """Get the space for the whole output. True: ``target`` already holds every copied range, at no cost.

    Raises OSError on a full disk, before a byte is written.
    """
    if _stays_in_place(recipe) and clone(files.first, target):
        os.ftruncate(target, recipe.size)
        return True
    preallocate(target, recipe.size)
    return False


def _stays_in_place(recipe: Recipe) -> bool:
    """Return whether copied ranges keep their offsets, so that sharing blocks gives most of the output."""
    offsets = [0, *accumulate(segment.length for segment in recipe.segments)]
    moved = any(
        isinstance(each, Copy) and (each.offset != at or each.file not in (None, recipe.source))
        for each, at in zip(recipe.segments, offsets, strict=False)
    )
    return not moved and recipe.size - recipe.new_bytes >= _WORTH_CLONING


# Hears up to which byte the output is written
Wrote = Callable[[int], None]


def fill(recipe: Recipe, files: Originals, target: int, wrote: Wrote, *, cloned: bool = False) -> None:
    """Write every segment at its place; ``cloned`` files hold their copied ranges already.

    ``wrote`` is told how far it is, and never goes back: what was written is not written to again.
    """
    original = Reading(files)
    at = 0
    for run in _runs(recipe.segments):
        length = sum(segment.length for segment in run)
        first = run[0]
        if not (isinstance(first, Copy) and first.length >= SMALL):
            _write(blocks(run, original), target, at, wrote)
        elif not cloned:
            _copy(first, original, files, target, at, wrote)
        at += length
        wrote(at)


def _runs(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Yield long copied ranges one by one; everything between two of them together."""
    run: list[Segment] = []
    for segment in segments:
        if isinstance(segment, Copy) and segment.length >= SMALL:
            if run:
                yield run
            yield [segment]
            run = []
        else:
            run.append(segment)
    if run:
        yield run


def _copy(segment: Copy, original: Reading, files: Originals, target: int, at: int, wrote: Wrote) -> None:
    done = 0
    while done < segment.length:
        count = min(_AT_ONCE, segment.length - done)
        copied = copy_range(files.fd(segment.file), target, count, segment.offset + done, at + done)
        if not copied:  # not offered here, or the original has ended: reading tells
            rest = Copy(segment.offset + done, segment.length - done, segment.file)
            _write(original.large(rest), target, at + done, wrote)
            return
        done += copied
        wrote(at + done)


def _write(data: Iterable[bytes | memoryview], target: int, at: int, wrote: Wrote) -> None:
    for block in data:
        view = memoryview(block)
        while view:
            written = write_at(target, view, at)
            view, at = view[written:], at + written
        wrote(at)


# ---- the bytes of a recipe as blocks of about a megabyte, however small or large its segments are


# Two blocks fit the second-level cache of a core: comparing them then costs little beside reading them
BLOCK = 1 << 20
# Copied ranges shorter than this are read together with their neighbours
SMALL = 64 << 10


class Reading:
    """Reads copied ranges, through a window that serves many small ranges of one file at once."""

    def __init__(self, files: Originals) -> None:
        self._files = files
        self._file: str | None = None
        self._start = 0
        self._window = memoryview(b"")

    def small(self, segment: Copy) -> bytes:
        """Return a range shorter than a block, which holds nothing else in memory."""
        begin = segment.offset - self._start
        if segment.file != self._file or not 0 <= begin <= begin + segment.length <= len(self._window):
            # only where ranges follow each other it pays to read far ahead
            follows = segment.file == self._file and 0 <= begin - len(self._window) < BLOCK
            ahead = BLOCK if follows or not self._window else SMALL
            self._window = memoryview(read_at(self._files.fd(segment.file), ahead, segment.offset))
            self._file, self._start, begin = segment.file, segment.offset, 0
        data = bytes(self._window[begin : begin + segment.length])
        return data if len(data) == segment.length else b"".join(self.large(segment))

    def large(self, segment: Copy) -> Iterator[bytes]:
        """Yield a range of any length, block by block. Raises WriteError when the file ends before."""
        offset, end = segment.offset, segment.offset + segment.length
        while offset < end:
            data = read_at(self._files.fd(segment.file), min(BLOCK, end - offset), offset)
            if not data:
                raise WriteError(f"The original ended at byte {offset} while it was copied; repair it again.")
            yield data
            offset += len(data)


def blocks(segments: Iterable[Segment], original: Reading) -> Iterator[bytes | memoryview]:
    """Yield all bytes of the segments, in order.

    Raises WriteError when a generated segment has another length than it said, and when the original ends too early.
    """
    parts: list[bytes | memoryview] = []
    held = 0
    for segment in segments:
        for part in _parts(segment, original):
            if len(part) >= SMALL:
                if parts:
                    yield b"".join(parts)
                    parts, held = [], 0
                yield part
                continue
            parts.append(part)
            held += len(part)
            if held >= BLOCK:
                yield b"".join(parts)
                parts, held = [], 0
    if parts:
        yield b"".join(parts)


def _parts(segment: Segment, original: Reading) -> Iterator[bytes | memoryview]:
    if isinstance(segment, Literal):
        view = segment.data
        yield from (view,) if len(view) <= BLOCK else (view[at : at + BLOCK] for at in range(0, len(view), BLOCK))
    elif isinstance(segment, Copy):
        if segment.length < SMALL:
            yield original.small(segment)
        else:
            yield from original.large(segment)
    else:
        made = 0
        for chunk in segment.chunks():
            made += len(chunk)
            yield from (chunk[at : at + BLOCK] for at in range(0, len(chunk), BLOCK))
        if made != segment.length:
            raise WriteError(
                f"{plural(made, 'byte was', 'bytes were')} made instead of {segment.length}; the original is untouched."
            )


# ---- the files that ranges are copied from: nearly always one, and several where a checkpoint is in several files


# files kept open at once beside the first; opening one again costs little
_MOST_OPEN = 64


class Originals:
    """The file that a recipe names as its source, and others by their paths, opened when bytes of them are wanted.

    Each must stay what it was when it was first opened.
    """

    def __init__(self, path: str, known: FileIdentity | None = None) -> None:
        self.path = path
        self.first = _open(path)
        self._open: dict[str, int] = {}
        self._known: dict[str, FileIdentity] = {} if known is None else {path: known}

    def fd(self, file: str | None) -> int:
        """Return the open file at this path; None is the source of the recipe."""
        if file is None or file == self.path:
            return self.first
        if file not in self._open:
            if len(self._open) >= _MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            self._open[file] = _open(file)
            now = _identity(os.fstat(self._open[file]))
            if self._known.setdefault(file, now) != now:
                raise _changed(file)
        return self._open[file]

    @property
    def identity(self) -> FileIdentity:
        """What the first is, as it is open."""
        return _identity(os.fstat(self.first))

    def require_unchanged(self) -> None:
        """Raise WriteError when one of the files is not what it was any more."""
        now = self.identity
        if self._known.setdefault(self.path, now) != now:
            raise _changed(self.path)
        for path, known in self._known.items():
            if path != self.path and _identity(os.stat(path)) != known:
                raise _changed(path)

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])
        os.close(self.first)


@contextmanager
def originals(path: str, known: FileIdentity | None = None) -> Iterator[Originals]:
    """Open the originals of a recipe with this source, which must be what ``known`` says."""
    with closing(Originals(path, known)) as files:
        files.require_unchanged()
        yield files


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | BINARY)
    except OSError as error:
        raise WriteError(f"The original {path} cannot be opened: {system_says(error)}") from error


def _identity(status: os.stat_result) -> FileIdentity:
    return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _changed(path: str) -> WriteError:
    return WriteError(f"{path} changed while it was being repaired; nothing was written. Repair it again.")
