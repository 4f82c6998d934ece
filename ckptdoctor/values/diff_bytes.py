"""Compares the bytes of tensors in blocks, as fast as memory gives them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from ckptdoctor.checkpoint import Checkpoint, Source, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.tensor import is_contiguous
from ckptdoctor.errors import DamagedError
from ckptdoctor.formats.fresh.strided import length, refusal, segments
from ckptdoctor.noun import noun, replace
from ckptdoctor.values.files import Files
from ckptdoctor.writing.recipe import Copy, Generated, Literal, Segment

BLOCK = 1 << 19  # two of them stay in the cache of a core
_FIRST = 1 << 16  # nearly all that differs does so at its beginning: no more than this is read for nothing
_CUT = 64 << 20  # longer runs are shared out among threads
_BATCH = 16 << 20  # bytes that a thread is given at a time: the others wait for the last one

_RAW = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}  # what quantized dtypes are stored as

Data = tuple[Segment, ...]


@noun
class ByteRun:
    """The same number of elements of both sides; ``number`` is the pair's, ``leaf`` the part of its tensor."""

    number: int
    leaf: int
    a: Tensor
    b: Tensor
    data_a: Data
    data_b: Data
    elements: int

    @property
    def nbytes(self) -> int:
        """Bytes of A."""
        return sum(each.length for each in self.data_a)


class Feed:
    """The bytes of segments from the first to the last, as many at a time as are asked for."""

    def __init__(self, data: Data, files: Files) -> None:
        self._data = deque(data)
        self._files = files
        self._at = 0  # bytes of the first segment that were given
        self._made: Iterator[bytes] | None = None
        self._rest = memoryview(b"")

    def fill(self, view: memoryview) -> None:
        """Fill all of ``view``. Raises DamagedError when there is less."""
        done = 0
        while done < len(view):
            if not self._data:
                raise DamagedError("The bytes of a tensor end before they should.")
            done += self._some(view[done:])

    def _some(self, view: memoryview) -> int:
        segment = self._data[0]
        step = min(len(view), segment.length - self._at)
        if isinstance(segment, Copy):
            assert segment.file is not None
            self._files.fill(segment.file, segment.offset + self._at, view[:step])
        elif isinstance(segment, Literal):
            view[:step] = segment.data[self._at : self._at + step]
        else:
            step = self._from_made(segment, view[:step])
        self._at += step
        if self._at >= segment.length:
            self._data.popleft()
            self._at, self._made, self._rest = 0, None, memoryview(b"")
        return step

    def _from_made(self, segment: Generated, view: memoryview) -> int:
        if self._made is None:
            self._made = segment.chunks()
        while not self._rest:
            self._rest = memoryview(next(self._made, b""))
            if not self._rest:
                raise DamagedError("The bytes of a tensor end before they should.")
        step = min(len(view), len(self._rest))
        view[:step] = self._rest[:step]
        self._rest = self._rest[step:]
        return step


class Blocks:
    """Two buffers of one thread."""

    def __init__(self, a: Files, b: Files, work: Work | None = None) -> None:
        self._files = a, b
        self._buffers = bytearray(BLOCK), bytearray(BLOCK)
        self._work = work or Work()

    def same(self, run: ByteRun) -> bool:
        """Return whether both sides have the same bytes; what follows the first block that differs is not read."""
        feeds = Feed(run.data_a, self._files[0]), Feed(run.data_b, self._files[1])
        one, other = self._buffers
        left, most, whole = run.nbytes, _FIRST, run.nbytes
        while left:
            step = min(left, most)
            feeds[0].fill(memoryview(one)[:step])
            feeds[1].fill(memoryview(other)[:step])
            if (one != other) if step == BLOCK else (one[:step] != other[:step]):
                self._work.advance(2 * (left - whole))  # all of it is measured again
                return False
            left, most = left - step, BLOCK
            self._work.advance(2 * step)
        return True

    def digest(self, data: Data, side: int) -> bytes:
        """Return a hash that other contents do not have."""
        from hashlib import blake2b  # which brings OpenSSL

        feed, buffer = Feed(data, self._files[side]), memoryview(self._buffers[side])
        made = blake2b(digest_size=16)
        left = sum(each.length for each in data)
        while left:
            step = min(left, BLOCK)
            feed.fill(buffer[:step])
            made.update(buffer[:step])
            left -= step
            self._work.advance(step)
        return made.digest()


def runs(number: int, a: Tensor, b: Tensor, swapped: tuple[bool, bool], distant: bool) -> list[ByteRun] | str:
    """Return the runs of a pair of tensors to compare; or why there is no comparing them."""
    mine, its = leaves(a), leaves(b)
    if isinstance(mine, str) or isinstance(its, str):
        return mine if isinstance(mine, str) else str(its)
    found: list[ByteRun] = []
    for leaf, (one, other) in enumerate(zip(mine, its, strict=False)):
        if len(mine) != len(its) or one.numel != other.numel:
            return "they consist of other parts" if len(mine) > 1 else "their shapes differ"
        one, other = _in_memory_order(one, other)
        data = segments(one, swapped[0]), segments(other, swapped[1])
        if distant and any(isinstance(each, Generated) for side in data for each in side):
            return "on another machine, only tensors that are stored there as they are can be compared"
        found += _cut(ByteRun(number, leaf, one, other, *data, one.numel))
    return found


def leaves(tensor: Tensor) -> list[Tensor] | str:
    """Return the plain tensors that hold the values of one: itself, or its parts. A text says why there are none."""
    if tensor.dtype.kind == "quantized" or tensor.parts or tensor.layout != "strided":
        found: list[Tensor] = []
        if tensor.storage is not None:
            if tensor.dtype.name not in _RAW:
                return f"{tensor.dtype.name} is a packed dtype"
            found.append(replace(tensor, dtype=BY_NAME[_RAW[tensor.dtype.name]], parts=(), details=(), subclass=None))
        for part in tensor.parts:
            inner = leaves(part)
            if isinstance(inner, str):
                return inner
            found += inner
        why = "its values are not in the file" if not found else next(filter(None, map(_why_not, found)), None)
        return why or found
    plain = tensor if tensor.subclass is None else replace(tensor, subclass=None)
    return _why_not(plain) or [plain]


def _why_not(tensor: Tensor) -> str | None:
    """Return why a tensor has no run of bytes that could be read, as the end of a sentence; None where it has."""
    why = refusal(tensor)
    if why is not None:
        return f"it {why}"
    held = tensor.values.nbytes if tensor.values is not None else 0
    room = tensor.storage.nbytes if tensor.storage is not None else held
    if not tensor.chunks and length(tensor) > max(room, 1) * 64:  # an expanded view could take forever
        return "its view repeats its elements"
    return None


def _in_memory_order(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Both in memory order, where it is the same for both and without gaps, so that nothing has to be rearranged."""
    if one.stride != other.stride or one.shape != other.shape or one.chunks or other.chunks or is_contiguous(one):
        return one, other
    step = 1
    for stride, size in sorted(zip(one.stride, one.shape, strict=True)):
        if size != 1 and stride != step:
            return one, other
        step *= size
    flat = (step,)
    return replace(one, shape=flat, stride=(1,)), replace(other, shape=flat, stride=(1,))


def _cut(run: ByteRun) -> Iterator[ByteRun]:
    """Yield the run in parts that threads can share, where each side is one range of a file."""
    one, other = (data[0] if len(data) == 1 else None for data in (run.data_a, run.data_b))
    bits = run.a.dtype.bits, run.b.dtype.bits
    plain = isinstance(one, Copy) and isinstance(other, Copy) and not (bits[0] % 8 or bits[1] % 8)
    if not plain or run.nbytes <= _CUT:
        yield run
        return
    assert isinstance(one, Copy) and isinstance(other, Copy)
    size = _CUT // 16
    for first in range(0, run.elements, size):
        count = min(size, run.elements - first)
        yield replace(
            run,
            data_a=(_part(one, first, count, bits[0] // 8),),
            data_b=(_part(other, first, count, bits[1] // 8),),
            elements=count,
        )


def _part(segment: Copy, first: int, count: int, width: int) -> Copy:
    return Copy(segment.offset + first * width, count * width, segment.file)


def workers(distant: bool) -> int:
    """Threads that are worth it."""
    return 1 if distant else min(4, os.cpu_count() or 1)


def batches(every: Sequence[ByteRun]) -> Iterator[list[ByteRun]]:
    """Runs for one thread each: enough to do, and not too much."""
    group: list[ByteRun] = []
    held = 0
    for run in every:
        group.append(run)
        held += run.nbytes
        if held >= _BATCH or len(group) >= 1000:
            yield group
            group, held = [], 0
    if group:
        yield group


def same_bytes(
    pairs: Sequence[tuple[Tensor, Tensor]],
    a: tuple[Checkpoint, Source],
    b: tuple[Checkpoint, Source],
    work: Work,
) -> list[bool | None]:
    """Return for each pair whether both tensors hold the same bytes in one order; None where nobody can tell.

    ``work`` counts the bytes of both that are done. Raises StoppedError once nobody wants the rest.
    """
    swapped = a[0].big_endian, b[0].big_endian
    told: list[bool | None] = []
    every: list[ByteRun] = []
    for number, (one, other) in enumerate(pairs):
        kind = (one.dtype.name, one.shape) == (other.dtype.name, other.shape)
        found = runs(number, one, other, swapped, a[1].distant or b[1].distant) if kind else []
        told.append(kind if not isinstance(found, str) else None)
        every += [] if isinstance(found, str) else found

    def compared(group: list[ByteRun]) -> list[tuple[int, bool]]:
        with Files(a[1]) as mine, Files(b[1]) as its:
            blocks = Blocks(mine, its, work)
            return [(run.number, blocks.same(run)) for run in group]

    with ThreadPoolExecutor(workers(a[1].distant or b[1].distant), thread_name_prefix="ckptdoctor-alike") as pool:
        futures = [pool.submit(compared, group) for group in batches(every)]
        try:
            for future in futures:
                for number, same in future.result():
                    told[number] = bool(told[number]) and same
        finally:
            for future in futures:
                future.cancel()
    return told
