"""A tensor as chunks of real numbers: whatever its layout, each element once, and never more than a chunk in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.loading.tensors import COMPRESSED_LAYOUTS
from ckptdoctor.noun import noun
from ckptdoctor.values.bytes import TensorBytes

if TYPE_CHECKING:
    import torch


# values at a time: the second pass finds them in the cache, and calls into torch are few
CHUNK = 1 << 20
LARGEST_CHUNK = 2 * CHUNK  # of floats of 16 bits, which take half of the room
_PACKED = ("float4_e2m1fn_x2", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "quint4x2", "quint2x4")
_WHOLE = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}  # what quantized dtypes are stored as
_SHELLS = 8  # bits of the smallest integer that torch computes with


class UnreadError(Exception):
    """The values of a tensor cannot be looked at; its text is the reason."""


@noun
class Strip:
    """``count`` real numbers in a row, each standing for ``weight`` elements; ``read(start, stop)`` gives them.

    The chunks are contiguous and one-dimensional; they are only valid until the next one is asked for. A strip that
    is not ``divisible`` is read from end to end.
    """

    count: int
    read: Callable[[int, int], Iterator[torch.Tensor]]
    weight: int = 1
    divisible: bool = True


def strips(tensor: Tensor, source: TensorBytes) -> Iterator[Strip]:
    """All strips of a tensor. Raises UnreadError, or DamagedError where its bytes are not all there."""
    if tensor.chunks:
        if sum([piece.numel for _, piece in tensor.chunks]) != tensor.numel:
            raise UnreadError("pieces of it are missing")
        for _, piece in tensor.chunks:
            yield from strips(piece, source)
    elif tensor.layout == "sparse_coo" or tensor.layout in COMPRESSED_LAYOUTS:
        if not tensor.parts:
            raise UnreadError("its values are not in the file")
        yield from strips(tensor.parts[-1], source)  # indices before values, in every sparse layout
    elif tensor.dtype.kind == "quantized":
        yield _quantized(tensor, source)
    elif tensor.parts or tensor.layout != "strided":
        if len(tensor.parts) != 1:
            raise UnreadError(f"{_article(tensor)} is made of other tensors in its own way")
        yield from strips(tensor.parts[0], source)
    else:
        yield _strided(tensor, source)


def _article(tensor: Tensor) -> str:
    return f"a {(tensor.subclass or tensor.layout).rpartition('.')[2]}"


def _strided(tensor: Tensor, source: TensorBytes) -> Strip:
    require_values(tensor)
    tensor, weight = _without_repeats(tensor)
    _require_room(tensor)
    details = dict(tensor.details)
    if not (details.get("conj") or details.get("neg")):
        flat = _in_memory_order(tensor)
        if flat is not None:
            return _flat(flat, source, weight)
    return _cut(tensor, source, weight)


def require_values(tensor: Tensor) -> None:
    """Raises UnreadError for a tensor without values of its own, or of a dtype that nothing can be computed with."""
    dtype = tensor.dtype
    if dtype.name in _PACKED or dtype.kind == "bits":
        raise UnreadError(f"{dtype.name} is a packed dtype")
    if dtype.kind in ("int", "uint") and dtype.name.lstrip("uint") not in ("8", "16", "32", "64"):
        raise UnreadError(f"torch computes nothing with {dtype.name}")
    if tensor.storage is None and tensor.values is None:
        raise UnreadError("it was saved without values")


def _without_repeats(tensor: Tensor) -> tuple[Tensor, int]:
    """The tensor with each element of an expanded dimension once, and how often that is."""
    sizes = [size for size, step in zip(tensor.shape, tensor.stride, strict=True) if step == 0 and size > 1]
    if not sizes:
        return tensor, 1
    shape = tuple([1 if step == 0 else size for size, step in zip(tensor.shape, tensor.stride, strict=True)])
    return replace(tensor, shape=shape), prod(sizes)


def _require_room(tensor: Tensor) -> None:
    """A view that shows the elements of its storage again and again could take forever."""
    room = len(tensor.values) if tensor.values is not None else tensor.storage.nbytes if tensor.storage else 0
    if tensor.numel * tensor.dtype.bits > 8 * room:
        raise UnreadError("its view shows more elements than there are bytes")


def _in_memory_order(tensor: Tensor) -> Tensor | None:
    """The elements in the order in which they lie, where they lie without gaps; None where they do not."""
    step = 1
    dimensions = sorted([pair for pair in zip(tensor.stride, tensor.shape, strict=True) if pair[1] != 1])
    for stride, size in dimensions:
        if stride != step:
            return None
        step *= size
    return replace(tensor, shape=(step,), stride=(1,), is_parameter=False, requires_grad=False)


def _flat(tensor: Tensor, source: TensorBytes, weight: int) -> Strip:
    """Elements without gaps; a complex number is two real ones."""
    parts = 2 if tensor.dtype.kind == "complex" else 1
    size = LARGEST_CHUNK if tensor.dtype.kind == "float" and tensor.dtype.bits == 16 else CHUNK
    whole = source.mapped(tensor)

    def read(start: int, stop: int) -> Iterator[torch.Tensor]:
        if whole is not None:
            real = _real(whole)
            for at in range(start, stop, size):
                yield real[at : min(stop, at + size)]
            return
        for piece in source.pieces(tensor, start // parts, stop // parts, size // parts):
            yield _real(piece)

    return Strip(parts * tensor.numel, read, weight, whole is not None or not _is_compressed(tensor))


def _is_compressed(tensor: Tensor) -> bool:
    return tensor.storage is not None and tensor.storage.compressed


def _real(values: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.view_as_real(values).view(-1) if values.is_complex() else values


def _cut(tensor: Tensor, source: TensorBytes, weight: int) -> Strip:
    """A view with gaps, or with a conj or neg bit: copied piece by piece."""
    view = source.whole(tensor)

    def read(start: int, stop: int) -> Iterator[torch.Tensor]:
        for place in _places(tensor.shape, CHUNK // 2):
            yield _real(view[place].resolve_conj().resolve_neg().contiguous().view(-1))

    return Strip((2 if tensor.dtype.kind == "complex" else 1) * tensor.numel, read, weight, divisible=False)


def _quantized(tensor: Tensor, source: TensorBytes) -> Strip:
    """The numbers that quantized ones stand for: their distance from the zero point, times the scale."""
    import torch

    details = dict(tensor.details)
    if tensor.dtype.name not in _WHOLE:
        raise UnreadError(f"{tensor.dtype.name} is a packed dtype")
    if "scheme" not in details:
        raise UnreadError("its scales are not known")
    stored = replace(tensor, dtype=BY_NAME[_WHOLE[tensor.dtype.name]], parts=(), details=())
    _require_room(stored)
    view = source.whole(stored)
    shape = [1] * len(tensor.shape)
    if details["scheme"] == "per_tensor_affine":
        scale = torch.full(shape, float(details["scale"]), dtype=torch.float64)
        zero = torch.full(shape, float(details["zero_point"]), dtype=torch.float64)
    elif len(tensor.parts) == 2 and 0 <= int(details["axis"]) < len(shape):
        shape[int(details["axis"])] = tensor.shape[int(details["axis"])]
        scale, zero = (source.whole(part).double().view(shape) for part in tensor.parts)
    else:
        raise UnreadError("its scales are not known")

    def read(start: int, stop: int) -> Iterator[torch.Tensor]:
        for place in _places(tensor.shape, CHUNK // 4):
            here = tuple([part if size > 1 else slice(None) for part, size in zip(place, shape, strict=True)])
            yield ((view[place].double() - zero[here]) * scale[here]).reshape(-1)  # which keeps the view's strides

    return Strip(tensor.numel, read, divisible=False)


def _places(shape: tuple[int, ...], most: int) -> Iterator[tuple[slice, ...]]:
    """Slices that cut a shape into blocks of at most ``most`` elements, as long as possible in the last dimensions."""
    if prod(shape) <= most:
        yield tuple([slice(None)] * len(shape))
        return
    inner = prod(shape[1:])
    if inner <= most:
        step = max(1, most // max(1, inner))
        for at in range(0, shape[0], step):
            yield slice(at, at + step), *([slice(None)] * (len(shape) - 1))
        return
    for at in range(shape[0]):
        for rest in _places(shape[1:], most):
            yield slice(at, at + 1), *rest
