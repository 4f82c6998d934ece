"""Shapes, strides and offsets as the file states them, and whether torch could make a tensor of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ckptdoctor.checkpoint import DType
from ckptdoctor.formats.torch.read.storages import MAX_COUNT
from ckptdoctor.formats.torch.read.values import integer, items
from ckptdoctor.pickles.graph import Tuple, Value

# at::TensorImpl takes more, but no operation does (kMaxDimensions of TensorIterator and of DLPack exporters)
MAX_DIMENSIONS = 64


class OddTensor(Exception):
    """What the file says of a tensor cannot be one; the text says why."""


def integers(value: Value, what: str) -> tuple[int, ...]:
    """The sizes or strides of a tensor. Raises OddTensor when they are anything but integers of 64 bits."""
    given = value.items if type(value) is Tuple else items(value)
    if given is None:
        raise OddTensor(f"its {what} is no tuple")
    if len(given) > MAX_DIMENSIONS:
        raise OddTensor(f"its {what} has {len(given)} dimensions, and torch handles {MAX_DIMENSIONS} at most")
    found = []
    for item in given:
        number = item if type(item) is int else integer(item)
        if number is None:
            raise OddTensor(f"its {what} holds something that is no integer")
        if not 0 <= number <= MAX_COUNT:
            raise OddTensor(f"its {what} holds a number that is negative or beyond 64 bits")
        found.append(number)
    return tuple(found)


def offset_of(value: Value) -> int:
    """The storage offset of a tensor. Raises OddTensor when it is no integer from 0 to 2^63 - 1."""
    number = value if type(value) is int else integer(value)
    if number is None or not 0 <= number <= MAX_COUNT:
        raise OddTensor("its storage offset is not a number from 0 up to 64 bits")
    return number


def shape_of(value: Value, dtype: DType) -> tuple[int, ...]:
    """The shape of a tensor. Raises OddTensor when its elements are beyond counting."""
    shape = integers(value, "shape")
    if prod(shape) * max(1, dtype.bits // 8) > MAX_COUNT:
        raise OddTensor("it has more bytes than 64 bits can count")
    return shape


View = tuple[tuple[int, ...], tuple[int, ...], int, int]


def view_of(size: Value, stride: Value, offset: Value, dtype: DType) -> View:
    """Shape, strides, offset, and the number of elements that the storage must have for them.

    Raises OddTensor when no tensor can be like that.
    """
    usual = _usual_view(size, stride, offset, dtype)
    if usual is not None:
        return usual
    start = offset_of(offset)
    shape, strides = shape_of(size, dtype), integers(stride, "stride")
    if len(shape) != len(strides):
        raise OddTensor(f"it has {len(shape)} sizes but {len(strides)} strides")
    if 0 in shape:
        return shape, strides, start, 0
    reach = start + 1
    for extent, step in zip(shape, strides, strict=True):
        reach += (extent - 1) * step
    if reach > MAX_COUNT:
        raise OddTensor("its elements lie farther apart than 64 bits can count")
    return shape, strides, start, reach


def _usual_view(size: Value, stride: Value, offset: Value, dtype: DType) -> View | None:
    """The same for what nearly every tensor is, in one pass; None where it takes a closer look."""
    if type(size) is not Tuple or type(stride) is not Tuple or type(offset) is not int or offset < 0:
        return None
    sizes, strides = size.items, stride.items
    reach = usual_reach(sizes, strides, offset, dtype)
    if reach is None:
        return None
    return tuple(sizes), tuple(strides), offset, reach  # type: ignore[arg-type]  # usual_reach saw integers only


def usual_reach(sizes: Sequence[Value], strides: Sequence[Value], offset: int, dtype: DType) -> int | None:
    """The elements that a storage needs for a view with elements; None for one that is empty or cannot be."""
    if len(sizes) != len(strides) or len(sizes) > MAX_DIMENSIONS or offset < 0:
        return None
    count, reach = max(1, dtype.bits >> 3), offset + 1
    for extent, step in zip(sizes, strides):  # noqa: B905  # the lengths are equal
        if type(extent) is not int or type(step) is not int or extent < 1 or step < 0:
            return None
        count *= extent
        reach += (extent - 1) * step
    return reach if count <= MAX_COUNT and reach <= MAX_COUNT else None
