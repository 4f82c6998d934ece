"""Cuts tensors of all layouts into strips of real numbers, which are read chunk by chunk.

Each element is read once, and one chunk of a strip is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from ckptdoctor.casting.arrays import HALVES, Array, real_dtype, real_parts
from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.loading.tensors import COMPRESSED_LAYOUTS
from ckptdoctor.noun import noun, replace
from ckptdoctor.values.regions import UnreadError, computable_dtype, require_values
from ckptdoctor.values.tensor_bytes import TensorBytes

# values of a chunk, and its bytes: a second pass finds them in the cache, and calls into NumPy are few
CHUNK = 1 << 18
CHUNK_BYTES = 1 << 19
# where there is one pass: threads wait for each other before and after each call into NumPy, longer than it takes to
# get values from beyond the cache of a core
SCAN_BYTES = 16 * CHUNK_BYTES
_AT_ONCE = 1 << 20  # plain floats that are read and measured at once, chunk by chunk, for the same reason
_STORED_AS = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}


@noun
class Strip:
    """``count`` real numbers in a row, each standing for ``weight`` elements; ``read(start, stop)`` gives them.

    The chunks are contiguous and one-dimensional, and hold ``dtype`` as ``casting.arrays`` has it; they are only valid
    until the next one is asked for. A strip that is not ``divisible`` is read from end to end. Each number takes
    ``width`` bytes. What is given at a time may be several chunks of ``chunk`` numbers.
    """

    count: int
    dtype: str
    width: int
    read: Callable[[int, int], Iterator[Array]]
    weight: int = 1
    divisible: bool = True
    chunk: int = CHUNK


def strips(tensor: Tensor, source: TensorBytes, most: int = CHUNK_BYTES) -> Iterator[Strip]:
    """Yield all strips of a tensor, in chunks of at most about so many bytes.

    Raises UnreadError, or DamagedError where its bytes are not all there.
    """
    if tensor.chunks:
        if sum([piece.numel for _, piece in tensor.chunks]) != tensor.numel:
            raise UnreadError("pieces of it are missing")
        for _, piece in tensor.chunks:
            yield from strips(piece, source, most)
    elif tensor.layout == "sparse_coo" or tensor.layout in COMPRESSED_LAYOUTS:
        if not tensor.parts:
            raise UnreadError("its values are not in the file")
        yield from strips(tensor.parts[-1], source, most)  # indices before values, in every sparse layout
    elif tensor.dtype.kind == "quantized":
        yield _quantized(tensor, source)
    elif tensor.parts or tensor.layout != "strided":
        if len(tensor.parts) != 1:
            raise UnreadError(f"{_article(tensor)} consists of other tensors in its own way")
        yield from strips(tensor.parts[0], source, most)
    else:
        yield _strided(tensor, source, most)


def _article(tensor: Tensor) -> str:
    return f"a {(tensor.subclass or tensor.layout).rpartition('.')[2]}"


def _strided(tensor: Tensor, source: TensorBytes, most: int) -> Strip:
    require_values(tensor)
    tensor, weight = _without_repeats(tensor)
    _require_room(tensor)
    source.require(tensor)
    details = dict(tensor.details)
    if not (details.get("conj") or details.get("neg")):
        flat = _in_memory_order(tensor)
        if flat is not None:
            return _flat(flat, source, weight, most)
    return _cut(tensor, source, weight)


def _without_repeats(tensor: Tensor) -> tuple[Tensor, int]:
    """Return the tensor with each element of an expanded dimension once, and how often that is."""
    sizes = [size for size, step in zip(tensor.shape, tensor.stride, strict=True) if step == 0 and size > 1]
    if not sizes:
        return tensor, 1
    shape = tuple([1 if step == 0 else size for size, step in zip(tensor.shape, tensor.stride, strict=True)])
    return replace(tensor, shape=shape), prod(sizes)


def _require_room(tensor: Tensor) -> None:
    """Raise UnreadError for a view that shows more elements than its storage has: it could take forever."""
    room = len(tensor.values) if tensor.values is not None else tensor.storage.nbytes if tensor.storage else 0
    if tensor.numel * tensor.dtype.bits > 8 * room:
        raise UnreadError("its view shows more elements than there are bytes")


def _in_memory_order(tensor: Tensor) -> Tensor | None:
    """Return the elements in memory order, where they are without gaps; None where they are not."""
    step = 1
    dimensions = sorted([pair for pair in zip(tensor.stride, tensor.shape, strict=True) if pair[1] != 1])
    for stride, size in dimensions:
        if stride != step:
            return None
        step *= size
    return replace(tensor, shape=(step,), stride=(1,), is_parameter=False, requires_grad=False)


def _flat(tensor: Tensor, source: TensorBytes, weight: int, most: int) -> Strip:
    """Return the strip of elements without gaps; a complex number is two real ones."""
    parts, dtype = _parts(tensor), tensor.dtype.name
    width = tensor.dtype.bits // 8 // parts
    compressed = tensor.storage is not None and tensor.storage.compressed
    chunk = min(CHUNK * (most // CHUNK_BYTES), most // width) // parts
    plain = most == CHUNK_BYTES and real_dtype(dtype) in ("float32", *HALVES) and not compressed
    several = max(1, _AT_ONCE // (parts * chunk)) if plain else 1

    def read(start: int, stop: int) -> Iterator[Array]:
        for piece in source.pieces(tensor, start // parts, stop // parts, several * chunk):
            yield real_parts(piece, dtype)

    return Strip(parts * tensor.numel, real_dtype(dtype), width, read, weight, not compressed, parts * chunk)


def _parts(tensor: Tensor) -> int:
    """Return how many real numbers one element is."""
    return 2 if tensor.dtype.kind == "complex" else 1


def _cut(tensor: Tensor, source: TensorBytes, weight: int) -> Strip:
    """Return a view with gaps, or with a conj or neg bit: copied block by block, in memory order."""
    source.require_unpacked(tensor)
    tensor = _turned(tensor, _outermost_first(tensor))
    details, parts = dict(tensor.details), _parts(tensor)
    if details.get("conj") or details.get("neg"):
        dtype, boxes = computable_dtype(tensor.dtype.name), source.boxes.read
    else:
        dtype, boxes = tensor.dtype.name, source.boxes.held

    def read(start: int, stop: int) -> Iterator[Array]:
        for place in _places(tensor.shape, CHUNK // 4):
            yield real_parts(boxes(tensor, place).reshape(-1), dtype)

    width = tensor.dtype.bits // 8 // parts
    return Strip(parts * tensor.numel, real_dtype(dtype), width, read, weight, divisible=False)


def _outermost_first(tensor: Tensor) -> list[int]:
    return sorted(range(len(tensor.shape)), key=lambda dim: -tensor.stride[dim])


def _turned(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """Return the same elements with the dimensions in another order."""
    return replace(
        tensor, shape=tuple([tensor.shape[dim] for dim in order]), stride=tuple([tensor.stride[dim] for dim in order])
    )


def _quantized(tensor: Tensor, source: TensorBytes) -> Strip:
    """Return the strip of numbers that quantized ones stand for: (number - zero point) * scale."""
    details = dict(tensor.details)
    if tensor.dtype.name not in _STORED_AS:
        raise UnreadError(f"{tensor.dtype.name} is a packed dtype")
    if "scheme" not in details:
        raise UnreadError("its scales are unknown")
    stored = replace(tensor, dtype=BY_NAME[_STORED_AS[tensor.dtype.name]], parts=(), details=())
    _require_room(stored)
    source.require(stored)
    source.require_unpacked(stored)
    shape = [1] * len(tensor.shape)
    if details["scheme"] == "per_tensor_affine":
        scale, zero = (np.full(shape, float(details[name])) for name in ("scale", "zero_point"))
    elif len(tensor.parts) == 2 and 0 <= int(details["axis"]) < len(shape):
        shape[int(details["axis"])] = tensor.shape[int(details["axis"])]
        scale, zero = (source.whole(part).astype(np.float64).reshape(shape) for part in tensor.parts)
    else:
        raise UnreadError("its scales are unknown")
    order = _outermost_first(tensor)
    stored, scale, zero = _turned(stored, order), scale.transpose(order), zero.transpose(order)

    def read(start: int, stop: int) -> Iterator[Array]:
        for place in _places(stored.shape, CHUNK // 8):
            pairs = zip(place, scale.shape, strict=True)
            here = tuple([slice(run.start, run.stop) if size > 1 else slice(None) for (run,), size in pairs])
            numbers = source.boxes.read(stored, place).astype(np.float64)
            numbers -= zero[here]
            numbers *= scale[here]
            yield numbers.reshape(-1)

    return Strip(tensor.numel, "float64", tensor.dtype.bits // 8, read, divisible=False)


def _places(shape: tuple[int, ...], most: int) -> Iterator[tuple[tuple[range], ...]]:
    """Yield boxes of at most ``most`` elements that make up a shape, as long as can be in the last dimensions."""
    if prod(shape) <= most:
        yield tuple([(range(size),) for size in shape])
        return
    inner = prod(shape[1:])
    if inner <= most:
        step = max(1, most // max(1, inner))
        for at in range(0, shape[0], step):
            yield (range(at, min(at + step, shape[0])),), *[(range(size),) for size in shape[1:]]
        return
    for at in range(shape[0]):
        for rest in _places(shape[1:], most):
            yield (range(at, at + 1),), *rest
