"""Works out what edits of tensors mean for their elements: the same for all formats and for the proof."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Union

from ckptdoctor.checkpoint import DType, KeyPath, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.edits.computing import calculated
from ckptdoctor.edits.elements import Elements, View, joined, narrowed, permuted, reshaped, views
from ckptdoctor.edits.kinds import (
    Compute,
    Dequantize,
    Edit,
    Fill,
    Fuse,
    FuseNorm,
    Replace,
    Reshape,
    Split,
    Tie,
    Transpose,
)
from ckptdoctor.edits.norms import normed
from ckptdoctor.edits.quantization import dequantized
from ckptdoctor.errors import RefusedError

Entering = Union[Fill, Split, Fuse, FuseNorm, Dequantize, Compute, Tie]  # what brings new keys
TensorEdit = Union[Reshape, Transpose, Entering]
ENTERING = (Fill, Split, Fuse, FuseNorm, Dequantize, Compute, Tie)
TENSOR_EDITS = (Reshape, Transpose, *ENTERING)

# dtypes with several elements in a byte, or with one spread over bytes of others
_PACKED = frozenset({"float4_e2m1fn_x2", "bits1x8", "bits2x4", "bits4x2"})

_CODES = {  # of the struct module
    "float64": "d", "float32": "f", "float16": "e", "complex128": "dd", "complex64": "ff", "complex32": "ee",
    "int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint64": "Q", "uint32": "I", "uint16": "H", "uint8": "B",
}  # fmt: skip


def runs(edits: Iterable[Edit]) -> Iterator[tuple[Edit, ...]]:
    """Yield the edits in groups that can be applied at once: edits of tensors of one kind that touch different ones.

    So are replacements, where none is inside another.
    """
    run: list[Edit] = []
    touched: set[KeyPath] = set()
    around: set[KeyPath] = set()  # of replacements: what they are in
    for edit in edits:
        mine: set[KeyPath] = set()
        outside: set[KeyPath] = set()
        if isinstance(edit, TENSOR_EDITS):
            mine = set(_paths(edit))
        elif isinstance(edit, Replace):
            mine = {edit.path}
            outside = {edit.path[:length] for length in range(len(edit.path))}
        apart = touched.isdisjoint(mine) and touched.isdisjoint(outside) and around.isdisjoint(mine)
        if run and (not mine or type(edit) is not type(run[0]) or not apart):
            yield tuple(run)
            run, touched, around = [], set(), set()
        run.append(edit)
        touched |= mine
        around |= outside
        if not mine:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


def _paths(edit: TensorEdit) -> Iterator[KeyPath]:
    yield from sources(edit)
    if isinstance(edit, ENTERING):
        yield from ((*place_of(edit), key) for key in new_keys(edit))


def sources(edit: TensorEdit) -> tuple[KeyPath, ...]:
    """Return the tensors that the edit takes."""
    if isinstance(edit, (Fuse, FuseNorm, Dequantize, Compute)):
        return edit.paths
    return () if isinstance(edit, Fill) else (edit.path,)


def place_of(edit: Entering) -> KeyPath:
    """Return the state dict that the edit changes. Raises RefusedError where that cannot be."""
    if isinstance(edit, (Dequantize, Compute)):
        depth = len(edit.place)
        if not all(path[:depth] == edit.place and isinstance((*path, None)[depth], str) for path in edit.paths):
            raise RefusedError(f"The parts of {edit.key} are not in {show_path(edit.place)}.")
        return edit.place
    paths = edit.paths if isinstance(edit, (Fuse, FuseNorm)) else (edit.path,)
    if not paths or not all(path and path[:-1] == paths[0][:-1] and isinstance(path[-1], str) for path in paths):
        raise RefusedError("Tensors can be split, fused and added only under the keys of one state dict.")
    if len(set(paths)) != len(paths):
        raise RefusedError(f"{show_path(paths[0])} cannot be fused with itself.")
    return paths[0][:-1]


def gone_keys(edit: TensorEdit) -> tuple[str, ...]:
    """Return the keys that go, each once: those of the tensors, or of what holds them."""
    if isinstance(edit, Tie):
        return ()
    depth = len(edit.place) if isinstance(edit, (Dequantize, Compute)) else -1
    return tuple(dict.fromkeys([str(path[depth]) for path in sources(edit)]))


def new_keys(edit: Entering) -> tuple[str, ...]:
    """Return the keys that come, each once."""
    if isinstance(edit, Split):
        return tuple(dict.fromkeys(key for key, _, _ in edit.parts))
    return (edit.key,) if isinstance(edit, (Fuse, FuseNorm, Dequantize, Compute, Tie)) else (str(edit.path[-1]),)


def made(edit: TensorEdit, given: Sequence[tuple[DType, Elements]]) -> list[Elements]:
    """Return the elements of each tensor that the edit makes of these. Raises RefusedError for what does not fit."""
    if isinstance(edit, Fill):
        return [_filled(edit)]
    if isinstance(edit, Reshape):
        return [_reshaped(edit, given[0][1])]
    if isinstance(edit, Tie):
        return [given[0][1]]
    if isinstance(edit, Dequantize):
        return [dequantized(edit, given)]
    if isinstance(edit, Compute):
        return [calculated(edit, given)]
    for (dtype, _), path in zip(given, sources(edit), strict=True):
        if dtype.bits % 8 or dtype.name in _PACKED or dtype.kind == "quantized":
            raise RefusedError(f"{show_path(path)} is {dtype.name}: its elements cannot be reordered.")
    if isinstance(edit, Transpose):
        return [_transposed(edit, given[0][1])]
    if isinstance(edit, FuseNorm):
        return [normed(edit, given)]
    return list(_split(edit, given[0][1])) if isinstance(edit, Split) else [_fused(edit, given)]


def _reshaped(edit: Reshape, elements: Elements) -> Elements:
    if any(size < 0 for size in edit.shape) or prod(edit.shape) != prod(elements.shape):
        raise RefusedError(f"{show_path(edit.path)} is {list(elements.shape)}, which is not {list(edit.shape)}.")
    return reshaped(elements, edit.shape)


def _transposed(edit: Transpose, elements: Elements) -> Elements:
    if sorted(edit.dims) != list(range(len(elements.shape))):
        shape = list(elements.shape)
        raise RefusedError(f"{show_path(edit.path)} is {shape}: its dimensions cannot become {list(edit.dims)}.")
    return permuted(elements, edit.dims)


def _split(edit: Split, elements: Elements) -> Iterator[Elements]:
    size = _size(elements, edit.dim, edit.path)
    _require_all([(start, stop) for _, start, stop in edit.parts], size, edit.path)
    for key in new_keys(edit):
        ranges = [(start, stop) for name, start, stop in edit.parts if name == key]
        yield joined([narrowed(elements, edit.dim, start, stop) for start, stop in ranges], edit.dim)


def _fused(edit: Fuse, given: Sequence[tuple[DType, Elements]]) -> Elements:
    dim, parts = edit.dim, [elements for _, elements in given]
    sizes = [_size(part, dim, path) for part, path in zip(parts, edit.paths, strict=True)]
    for (dtype, part), path in zip(given, edit.paths, strict=True):
        others = (dtype.name, part.shape[:dim], part.shape[dim + 1 :])
        if others != (given[0][0].name, parts[0].shape[:dim], parts[0].shape[dim + 1 :]):
            first = f"{show_path(edit.paths[0])} ({given[0][0].name} {list(parts[0].shape)})"
            raise RefusedError(f"{show_path(path)} ({dtype.name} {list(part.shape)}) cannot be joined to {first}.")
    order = edit.order or tuple([(number, 0, size) for number, size in enumerate(sizes)])
    if any(not 0 <= number < len(parts) for number, _, _ in order):
        raise RefusedError(f"The order of {edit.key} names missing tensors.")
    for number, size in enumerate(sizes):
        _require_all([(start, stop) for each, start, stop in order if each == number], size, edit.paths[number])
    return joined([narrowed(parts[number], dim, start, stop) for number, start, stop in order], dim)


def _size(elements: Elements, dim: int, path: KeyPath) -> int:
    if not 0 <= dim < len(elements.shape):
        raise RefusedError(f"{show_path(path)} is {list(elements.shape)}, and has no dimension {dim}.")
    return elements.shape[dim]


def _require_all(ranges: Sequence[tuple[int, int]], size: int, path: KeyPath) -> None:
    """Every index must be in one range: nothing is lost, and nothing is there twice."""
    at = 0
    for start, stop in sorted(ranges):
        if start != at or stop < start:
            break
        at = stop
    else:
        if at == size:
            return
    raise RefusedError(f"The parts of {show_path(path)} do not cover its {size:,} indices exactly once.")


def _filled(edit: Fill) -> View:
    dtype = BY_NAME.get(edit.dtype)
    if dtype is None or any(size < 0 for size in edit.shape):
        raise RefusedError(f"{show_path(edit.path)} cannot be made as {edit.dtype} {list(edit.shape)}.")
    element = _element(edit.value, dtype)
    if element is None:
        raise RefusedError(f"{show_path(edit.path)} cannot be filled with {edit.value!r}: {dtype.name} cannot hold it.")
    return View(f"fill {show_path(edit.path)}", 0, len(element), edit.shape, (0,) * len(edit.shape), element)


def _element(value: Union[bool, int, float], dtype: DType) -> bytes | None:
    """Return the bytes of one element, or None where the dtype does not hold the value exactly."""
    if dtype.name == "bool":
        return bytes([int(value)]) if value in (0, 1) else None
    if value == 0 and dtype.bits == 8 and dtype.kind == "float" and dtype.mantissa and dtype.name not in _PACKED:
        return b"\0"  # every float8 with a mantissa has its zero there
    code = "f" if dtype.name == "bfloat16" else _CODES.get(dtype.name)
    if code is None:
        return None
    try:
        whole = dtype.kind in ("int", "uint")
        made = struct.pack(f"<{code}", int(value) if whole else float(value), *([0.0] if len(code) == 2 else []))
    except (struct.error, OverflowError, ValueError):  # out of range, or NaN for an integer
        return None
    back = struct.unpack(f"<{code}", made)[0]
    if back != value and value == value:  # NaN is not itself
        return None
    if dtype.name != "bfloat16":
        return made
    return made[2:] if made[:2] == b"\0\0" else None


def storage_name(elements: Elements, dtype: DType, sizes: Sequence[int]) -> str:
    """Return what a storage with these elements is called until it is written: the same for the same ones.

    ``sizes`` are the bytes of the storages that they are views of, one each: a storage that shrinks is another one.
    """
    from hashlib import blake2b  # slow to import, and only edits need it

    from ckptdoctor.brief import in_full

    told = in_full((dtype.name, elements, sizes, [view.source for view in views(elements)]))
    return f"made {blake2b(told.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def with_new(keys: Sequence[str], new: Iterable[str]) -> list[str]:
    """Return the keys with new ones among them, each behind the last key below the module nearest to it."""
    last: dict[str, str] = {}
    for key in keys:
        for prefix in _prefixes(key):
            last[prefix] = key
    behind: dict[str | None, str | None] = dict(zip([None, *keys], [*keys, None], strict=True))
    for key in new:
        anchor = next((last[prefix] for prefix in _prefixes(key) if prefix in last), None)
        behind[key], behind[anchor] = behind[anchor], key
        for prefix in _prefixes(key):
            if last.get(prefix, anchor) == anchor:
                last[prefix] = key
    found: list[str] = []
    at = behind[None]
    while at is not None:
        found.append(at)
        at = behind[at]
    return found


def _prefixes(key: str) -> Iterator[str]:
    """Yield the modules that a key is in, innermost first; "" is the model."""
    end = key.rfind(".")
    while end > 0:
        yield key[:end]
        end = key.rfind(".", 0, end)
    yield ""
