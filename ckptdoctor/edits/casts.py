"""Lists the dtypes that tensors are cast to and from, and what they are called on a command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ckptdoctor.checkpoint import DType, Tensor, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.edits.elements import Converted, Elements, Reshaped, nbytes
from ckptdoctor.edits.kinds import Cast
from ckptdoctor.errors import RefusedError

TARGETS = ("float64", "float32", "float16", "bfloat16")
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
SOURCES = (*TARGETS, *FLOAT8)
EXACT = ("uint8",)  # only where no value changes: states of random generators

_OTHERS = {
    "f64": "float64", "fp64": "float64", "double": "float64",
    "f32": "float32", "fp32": "float32", "float": "float32", "single": "float32",
    "f16": "float16", "fp16": "float16", "half": "float16",
    "bf16": "bfloat16",
}  # fmt: skip
_NORMAL = (None, "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")


def named(text: str) -> str | None:
    """Return the dtype that somebody calls so ("bf16", "torch.half"), or None where it is none to cast to."""
    name = text.strip().lower().removeprefix("torch.")
    return name if name in TARGETS else _OTHERS.get(name)


def can_be_cast(tensor: Tensor) -> bool:
    """Return whether it is a plain tensor of floating-point numbers with bytes of its own."""
    plain = tensor.storage is not None and tensor.layout == "strided" and not tensor.parts and not tensor.chunks
    return plain and tensor.subclass in _NORMAL and tensor.dtype.name in SOURCES and not tensor.moved


def require_castable(tensor: Tensor, edit: Cast) -> None:
    """Raise RefusedError for a tensor that the edit cannot cast."""
    if edit.dtype not in TARGETS and not (edit.exact and edit.dtype in EXACT):
        raise RefusedError(f"Tensors can be cast to {', '.join(TARGETS)}, but not to {edit.dtype}.")
    if not can_be_cast(tensor):
        what = "is not a plain tensor" if tensor.dtype.name in SOURCES else f"is {tensor.dtype.name}"
        raise RefusedError(f"{show_path(tensor.path)} {what}, so it cannot be cast to {edit.dtype}.")


def converted(part: Elements, source: DType, edit: Cast) -> Converted:
    """Return the elements, of the dtype ``source``, as the edit casts them."""
    return Converted((part,), source.name, edit.dtype, BY_NAME[edit.dtype].bits // 8, part.shape, edit.exact)


def cast_in(elements: Elements) -> Converted | None:
    """Return what is cast, where the elements are nothing else."""
    while isinstance(elements, Reshaped):
        elements = elements.inner
    return elements if isinstance(elements, Converted) else None


_TOGETHER, _MOST = 1 << 16, 256  # bytes of numbers in a group, and items: each may be in a file of its own

Item = TypeVar("Item")


def alike(items: Iterable[Item], cast_of: Callable[[Item], Converted | None]) -> Iterator[list[Item]]:
    """Yield all items in groups: small neighbours that are cast between the same two dtypes, and others alone.

    NumPy takes as long for one small tensor as for all of a group.
    """
    some: list[Item] = []
    held, kinds = 0, ("", "")
    for item in items:
        made = cast_of(item)
        size = _TOGETHER if made is None else nbytes(made.parts[0])
        full = held + size > _TOGETHER or len(some) >= _MOST
        if some and (full or made is None or kinds != (made.kind, made.dtype)):
            yield some
            some, held = [], 0
        some.append(item)
        held, kinds = held + size, ("", "") if made is None else (made.kind, made.dtype)
    if some:
        yield some
