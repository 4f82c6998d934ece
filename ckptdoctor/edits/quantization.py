"""Describes what quantised layers store of a weight, by scheme, and checks it before anything is computed from it.

``SCALED``: (numbers of eight bits, scales), each number times the scale of its block. ``INT8``: the same as
bitsandbytes has it, with the largest values instead of scales: divided by 127; a third tensor gives the order of rows.
``AFFINE``: a quantised tensor of torch, with tensors of scales and zero points where it has several of each. ``FOUR``:
(bytes of two numbers, absmax, the sixteen values, quant_state) of bitsandbytes, then nested absmax and values where
absmax is quantised itself. ``SAME``: one tensor that stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod

from ckptdoctor.checkpoint import DType, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.edits.elements import Dequantized, Elements, Shape, reshaped
from ckptdoctor.edits.kinds import Dequantize
from ckptdoctor.errors import RefusedError
from ckptdoctor.wording import plural

SCALED, INT8, AFFINE, FOUR, SAME = "scaled", "int8", "affine", "four-bit", "same"
TARGETS = ("float64", "float32", "float16", "bfloat16")
SCALES = (*TARGETS, "float8_e8m0fnu")  # what scales may be
CODES = ("int8", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
QUANTIZED = ("qint8", "quint8")

_NUMBERS = {SCALED: (2, 2), INT8: (2, 3), AFFINE: (1, 3), FOUR: (4, 6), SAME: (1, 1)}  # tensors, fewest and most
_HELD = 1 << 24  # scales that are held in memory, at most
_LONGEST = 1 << 16  # bytes of a quant_state


def dequantized(edit: Dequantize, given: Sequence[tuple[DType, Elements]]) -> Elements:
    """Return what the edit makes of these tensors. Raises RefusedError for those that are not such parts."""
    kinds, parts = tuple([dtype.name for dtype, _ in given]), tuple([part for _, part in given])
    fewest, most = _NUMBERS.get(edit.scheme, (1, 0))
    if not fewest <= len(parts) <= most or edit.dtype not in TARGETS:
        raise _refused(edit, "is not part of a computable weight")
    if edit.scheme == SAME:
        if kinds[0] != edit.dtype:
            raise _refused(edit, f"is {kinds[0]}, not {edit.dtype}")
        return reshaped(parts[0], parts[0].shape)
    allowed = {SCALED: CODES, INT8: ("int8",), AFFINE: QUANTIZED, FOUR: ("uint8",)}[edit.scheme]
    if kinds[0] not in allowed or max([prod(part.shape) for part in parts[1:]], default=0) > _HELD:
        raise _refused(edit, f"is {kinds[0]} {list(parts[0].shape)}, which cannot be computed")
    if edit.scheme != FOUR and len(parts) > 1 and kinds[1] not in SCALES:
        raise _refused(edit, f"has scales of {kinds[1]}, which cannot be computed")
    shape = _shape_of_four(edit, kinds, parts) if edit.scheme == FOUR else parts[0].shape
    runs = _runs(edit, shape, parts[1].shape if len(parts) > 1 else ())
    width = BY_NAME[edit.dtype].bits // 8
    return Dequantized(edit.scheme, parts, kinds, runs, edit.affine, edit.dtype, width, shape)


def _refused(edit: Dequantize, why: str) -> RefusedError:
    return RefusedError(f"{show_path(edit.paths[0] if edit.paths else edit.place)} {why}.")


def _shape_of_four(edit: Dequantize, kinds: tuple[str, ...], parts: tuple[Elements, ...]) -> Shape:
    """Return the shape of a weight of four bits, which only the edit and the values of quant_state tell."""
    nested = len(parts) == 6
    wanted = ("uint8", "uint8" if nested else "float32", "float32", "uint8", "float32", "float32")
    packed, values, state = (prod(parts[place].shape) for place in (0, 2, 3))
    if kinds != wanted[: len(kinds)] or len(parts) == 5 or values != 16 or not 0 < state <= _LONGEST:
        raise _refused(edit, "and its parts are not as bitsandbytes writes them")
    if edit.shape is None or packed != (prod(edit.shape) + 1) // 2 or (nested and prod(parts[5].shape) != 256):
        raise _refused(edit, f"has {plural(packed, 'byte')}, not those of {list(edit.shape or ())}")
    return edit.shape


def _runs(edit: Dequantize, shape: Shape, scales: Shape) -> tuple[int, int, int, int]:
    """Return rows and columns, and how many of each share a scale; checked against the number of scales."""
    total, count = prod(shape), prod(scales)
    if edit.scheme == FOUR:  # the size of a block stands in quant_state
        return 1, total, 1, 0
    if edit.scheme == AFFINE:
        axis = edit.block[0]
        if not scales:
            return 1, total, 1, max(1, total)
        if not 0 <= axis < len(shape) or count != shape[axis]:
            raise _refused(edit, f"is {list(shape)}, and has {plural(count, 'scale')}")
        return total // max(1, prod(shape[axis + 1 :])), prod(shape[axis + 1 :]), 1, max(1, prod(shape[axis + 1 :]))
    columns = shape[-1] if shape else 1
    rows = total // columns if columns else 0
    high, wide = edit.block[0] or max(1, shape[-2] if len(shape) > 1 else 1), edit.block[1] or max(1, columns)
    if edit.block == (0, 0) and count == 1:
        return 1, total, 1, max(1, total)
    leading = prod(shape[:-2]) if len(shape) > 1 else 0
    each = shape[-2] if len(shape) > 1 else 0
    if count != leading * -(-each // high) * -(-columns // wide) or (leading > 1 and each % high):
        raise _refused(edit, f"is {list(shape)}, and its scales are {list(scales)}")
    return rows, columns, high, wide


def state_of(data: bytes, shape: Shape, absmax: int, nested: int) -> tuple[int, int, float]:
    """Return block size, nested block size and nested offset, as a quant_state of bitsandbytes says.

    They are 0 and 0.0 where there is none.

    ``absmax`` and ``nested`` are how many scales there are. Raises RefusedError where it is not of this weight.
    """
    from json import loads

    try:
        said = loads(data.decode("utf-8"))
        size = said["blocksize"]
        inner = said["nested_blocksize"] if nested else 0
        offset = said["nested_offset"] if nested else 0.0
        right = list(shape) == list(said["shape"]) and type(size) is int and size > 0
        right = right and absmax == -(-prod(shape) // size)
        if nested:
            right = right and type(inner) is int and inner > 0 and nested == -(-absmax // inner)
        if not right or type(offset) not in (int, float) or not isfinite(offset):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise RefusedError(
            f"The quant_state of a weight of {list(shape)} does not belong to such a weight: nothing is "
            "computed from it."
        ) from error
    return size, inner, float(offset)
