"""Arrays of NumPy that a pickle spells out whole, as the tensors with the same elements."""

from __future__ import annotations

from ckptdoctor.checkpoint import DType, KeyPath, Node, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME, NUMPY_ELEMENTS, little_endian
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.facts.numpy_values import array_of
from ckptdoctor.noun import noun

_TYPED, _UNTYPED = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"


@noun
class Held:
    """The elements of an array, and how they lie."""

    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    values: bytes


def held_values(node: Node) -> Held | None:
    """What an array holds; None for anything else, and where torch has no such elements or they do not fit it."""
    array = array_of(node)
    name = NUMPY_ELEMENTS.get(array.element.code) if array is not None else None
    if array is None or name is None or not isinstance(array.contents, bytes):
        return None
    dtype, shape = BY_NAME[name], array.shape
    values = little_endian(array.contents, dtype) if array.element.swapped else array.contents
    stride = contiguous_stride(shape[::-1])[::-1] if array.fortran else contiguous_stride(shape)
    return Held(dtype, shape, stride, values)


def tensor_of(held: Held, path: KeyPath, key: str) -> Tensor:
    """The tensor at ``path``, on a storage ``key`` of its own."""
    storage = Storage(key, len(held.values), held.dtype, "cpu", None)
    rebuild = _TYPED if held.dtype.storage_class is not None else _UNTYPED
    return Tensor(path, held.dtype, held.shape, held.stride, storage, rebuild=rebuild)
