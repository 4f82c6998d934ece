"""Arrays of NumPy that a pickle spells out whole, as the tensors with the same elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ckptdoctor.checkpoint import DType, KeyPath, Node, Opaque, Sequence, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME, NUMPY_ELEMENTS, NUMPY_MAKERS
from ckptdoctor.checkpoint.tensor import contiguous_stride

_REBUILD = "torch._utils._rebuild_tensor_v2"
_MOST = 64  # dimensions


@dataclass(frozen=True, slots=True)
class Held:
    """The elements of an array, and how they lie."""

    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    values: bytes


def held_values(node: Node) -> Held | None:
    """What an array holds; None for anything else, and where torch has no such elements or they do not fit it."""
    if not isinstance(node, Opaque) or node.class_name not in NUMPY_MAKERS or not isinstance(node.state, Sequence):
        return None
    if len(node.state.items) != 5 or node.items or node.entries:
        return None
    _, sizes, element, fortran, values = node.state.items
    dtype, shape = _dtype(element), _shape(sizes)
    if dtype is None or shape is None or not isinstance(values, bytes):
        return None
    if len(values) != prod(shape) * (dtype.bits // 8):
        return None
    stride = contiguous_stride(shape[::-1])[::-1] if fortran is True else contiguous_stride(shape)
    return Held(dtype, shape, stride, values)


def tensor_of(held: Held, path: KeyPath, key: str) -> Tensor:
    """The tensor at ``path``, on a storage ``key`` of its own."""
    storage = Storage(key, len(held.values), held.dtype, "cpu", None)
    return Tensor(path, held.dtype, held.shape, held.stride, storage, rebuild=_REBUILD)


def _dtype(node: Node) -> DType | None:
    if not isinstance(node, Opaque) or node.class_name != "numpy.dtype" or not isinstance(node.state, Sequence):
        return None
    code = node.arguments[0] if node.arguments else None
    order = node.state.items[1] if len(node.state.items) > 1 else None
    name = NUMPY_ELEMENTS.get(code) if isinstance(code, str) and order in ("<", "|") else None
    return None if name is None else BY_NAME[name]


def _shape(node: Node) -> tuple[int, ...] | None:
    if not isinstance(node, Sequence) or len(node.items) > _MOST:
        return None
    sizes = [item for item in node.items if type(item) is int and 0 <= item < 1 << 63]
    return tuple(sizes) if len(sizes) == len(node.items) else None
