"""Tells whether two tensors have the same bytes: by a few of them first, and then by all, each read once."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Source, Tensor
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.tensor import is_contiguous

_PROBE = 4096  # bytes at the beginning, in the middle and at the end that are looked at first
_CHUNK = 4 << 20


def is_readable(tensor: Tensor) -> bool:
    """Whether its elements lie in the file in C order, one after another."""
    if tensor.storage is None or tensor.parts or tensor.layout != "strided" or not is_contiguous(tensor):
        return False
    extent = tensor.storage.extent
    if extent is None or tensor.storage.compressed or not tensor.numel:
        return False
    return _span(tensor)[1] <= extent.length


def probe(source: Source, tensor: Tensor) -> bytes:
    """A few bytes of the tensor: where they differ from those of another, so do the tensors."""
    start, stop = _span(tensor)
    size = stop - start
    if size <= 3 * _PROBE:
        return read(source, tensor, 0, size)
    width = max(1, tensor.dtype.bits // 8)
    middle = size // 2 // width * width
    return b"".join([read(source, tensor, at, _PROBE) for at in (0, middle, size - _PROBE)])


def is_telling(marked: bytes, tensor: Tensor) -> bool:
    """Whether the numbers in a probe are not all the same, as those of tensors are that were only initialised."""
    width = max(1, tensor.dtype.bits // 8)
    return marked[width:] != marked[:-width]


def same(
    one: Tensor,
    other: Tensor,
    source: Source,
    base: Source | None = None,
    work: Work | None = None,
) -> bool:
    """Whether two tensors that can be read have the same bytes; of those that differ little is read.

    ``base`` are the bytes of the other one, where it lies in another checkpoint. ``work`` counts those of one of them.
    """
    base, work = source if base is None else base, work or Work()
    if one.nbytes != other.nbytes or probe(source, one) != probe(base, other):
        return False
    for mine, its in zip(chunks(source, one), chunks(base, other), strict=True):
        if mine != its:
            return False
        work.advance(len(mine))
    return True


def compared(
    one: Tensor,
    other: Tensor,
    source: Source,
    base: Source | None = None,
    work: Work | None = None,
) -> bool | None:
    """``same`` of any two tensors; None where those of one of them cannot be read as they lie."""
    return same(one, other, source, base, work) if is_readable(one) and is_readable(other) else None


def digest(source: Source, tensor: Tensor) -> bytes:
    """What only the same bytes give."""
    from hashlib import sha256

    found = sha256()
    for chunk in chunks(source, tensor):
        found.update(chunk)
    return found.digest()


def chunks(source: Source, tensor: Tensor) -> Iterator[bytes]:
    """The bytes of the tensor, some at a time. Raises TruncatedError when the file shrinks meanwhile."""
    start, stop = _span(tensor)
    for at in range(0, stop - start, _CHUNK):
        yield read(source, tensor, at, min(_CHUNK, stop - start - at))


def read(source: Source, tensor: Tensor, at: int, length: int) -> bytes:
    """``length`` bytes of the tensor from its byte ``at`` on."""
    assert tensor.storage is not None
    extent = tensor.storage.extent
    assert extent is not None
    return source.part(extent.file).read(extent.offset + _span(tensor)[0] + at, length)


def _span(tensor: Tensor) -> tuple[int, int]:
    """First byte of its storage, and one past the last."""
    start = tensor.offset * tensor.dtype.bits // 8
    return start, start + (tensor.numel * tensor.dtype.bits + 7) // 8
