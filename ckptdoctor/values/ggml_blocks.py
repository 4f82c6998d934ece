"""Gives the numbers that blocks of GGUF stand for, by the definition of each format, and how far apart its levels are.

Source: ``dequantize_row_*`` in ``ggml/src/ggml-quants.c`` of llama.cpp; tests compare this with its gguf package. A
block is a run of elements with its scales. ``LEVELS`` lists what can be told here: the formats of one scale for 32
elements, and those of 256 elements in groups, whose scales have scales. Formats that choose from long tables of vectors
(IQ1 to IQ3, TQ) are left out: a tensor in one of them is not compared.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ckptdoctor.casting.arrays import Array
from ckptdoctor.formats.gguf.kinds import BY_NAME

# the numbers of a block, and the largest distance of two neighbouring levels in each of its groups
Told = tuple[Array, Array]

# the levels of 4 bits in formats that are not even: ``kvalues_iq4nl`` and ``kvalues_mxfp4`` of ggml-common.h
_NOT_LINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
_WIDEST_NOT_LINEAR, _WIDEST_E2M1 = 24.0, 4.0


def dequantized(raw: Array, kind: str) -> Told:
    """Return the numbers of whole blocks (bytes, one after another), (blocks, elements), and steps (blocks, groups)."""
    with np.errstate(all="ignore"):  # scales that are NaN or infinite give such numbers
        return LEVELS[kind](raw.reshape(-1, BY_NAME[kind].nbytes))


def _halves(blocks: Array, start: int) -> Array:
    """Return the float16 of each block at this byte, as (blocks, 1) float32."""
    made: Array = np.ascontiguousarray(blocks[:, start : start + 2]).view(np.float16).astype(np.float32)
    return made


def _nibbles(packed: Array) -> Array:
    """Return the lower half of each byte, and behind these the upper halves: rows are (…, bytes).

    Rows are put in their places as one value each, for NumPy takes five times as long for runs of 16 bytes.
    """
    row = np.dtype(f"V{packed.shape[-1]}")
    upper = packed.view(row).copy()
    lower = (upper.view(np.uint8) & 15).view(row)
    upper.view(np.uint8)[...] >>= 4
    made: Array = np.concatenate((lower, upper), axis=-1).view(np.uint8)
    return made


def _fifth_bits(blocks: Array, start: int) -> Array:
    """Return 16 where the bit of an element is set, of 32 in four bytes."""
    made: Array = np.unpackbits(blocks[:, start : start + 4], axis=1, bitorder="little") << np.uint8(4)
    return made


def _times(codes: Array, scales: Array) -> Array:
    """Return codes times their scales: widened first, for what widens on the way takes a fifth longer."""
    made = np.empty(codes.shape, np.float32)
    np.copyto(made, codes)
    made *= scales
    return made


def _q8_0(blocks: Array) -> Told:
    scale = _halves(blocks, 0)
    return _times(blocks[:, 2:].view(np.int8), scale), np.abs(scale)


def _q4_0(blocks: Array) -> Told:
    scale = _halves(blocks, 0)
    codes = _nibbles(blocks[:, 2:]).view(np.int8)
    codes -= np.int8(8)
    return _times(codes, scale), np.abs(scale)


def _q4_1(blocks: Array) -> Told:
    scale = _halves(blocks, 0)
    made = _times(_nibbles(blocks[:, 4:]), scale)
    made += _halves(blocks, 2)
    return made, np.abs(scale)


def _q5_0(blocks: Array) -> Told:
    scale = _halves(blocks, 0)
    codes = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return _times(codes.view(np.int8) - np.int8(16), scale), np.abs(scale)


def _q5_1(blocks: Array) -> Told:
    scale = _halves(blocks, 0)
    made = _times(_nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4), scale)
    made += _halves(blocks, 2)
    return made, np.abs(scale)


def _iq4_nl(blocks: Array) -> Told:
    scale = _halves(blocks, 0)
    return _NOT_LINEAR[_nibbles(blocks[:, 2:])] * scale, np.abs(scale) * np.float32(_WIDEST_NOT_LINEAR)


def _mxfp4(blocks: Array) -> Told:
    # a power of two, halved for the levels are doubled: ``ggml_e8m0_to_fp32_half``
    power = blocks[:, :1].astype(np.uint32)
    bits = np.where(power < 2, np.uint32(0x00200000) << power, (power - 1) << 23)
    scale = bits.astype(np.uint32).view(np.float32)
    return _E2M1[_nibbles(blocks[:, 1:])] * scale, scale * np.float32(_WIDEST_E2M1)


# ---- 256 elements in groups


def _two_bits(packed: Array, at: int = 0) -> Array:
    """Return four elements of each byte, from bit ``at`` on: runs of 32 bytes give 128 elements, lowest bits first.

    Runs are put in their places as one value each, as those of nibbles are.
    """
    flat, run = np.ascontiguousarray(packed), np.dtype("V32")
    made = np.empty((len(packed), packed.shape[1] // 32, 4), run)
    for number in range(4):
        by = 2 * number - at
        moved = flat >> np.uint8(by) if by >= 0 else flat << np.uint8(-by)
        moved &= np.uint8(3 << at)
        made[:, :, number] = moved.view(run)
    return made.view(np.uint8).reshape(len(packed), -1, 4, 32)


def _grouped(codes: Array, scales: Array, lows: Array | None = None) -> Told:
    """Return codes times the scale of their group, less its minimum; scales and minima are (blocks, groups)."""
    made = _times(codes.reshape(len(codes), scales.shape[1], -1), scales[:, :, None])
    if lows is not None:
        made -= lows[:, :, None]
    return made.reshape(len(codes), -1), np.abs(scales)


def _q2_k(blocks: Array) -> Told:
    scales, minima = blocks[:, :16] & 15, blocks[:, :16] >> 4
    return _grouped(_two_bits(blocks[:, 16:80]), scales * _halves(blocks, 80), minima * _halves(blocks, 82))


def _q3_k(blocks: Array) -> Told:
    packed = blocks[:, 96:108]
    lower = _nibbles(packed[:, :8])
    upper = (packed[:, None, 8:] >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 4, 1)) & 3
    scales = (lower | (upper.reshape(-1, 16) << np.uint8(4))).view(np.int8) - np.int8(32)
    codes = _two_bits(blocks[:, 32:96]).reshape(-1, 256).view(np.int8)
    high = (blocks[:, None, :32] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1)) & 1
    low = (high.reshape(-1, 256) ^ 1) << np.uint8(2)  # four less where the bit is not set
    return _grouped(codes - low.view(np.int8), scales * _halves(blocks, 108))


def _six_bits(packed: Array) -> tuple[Array, Array]:
    """Return the eight scales and eight minima that twelve bytes hold (``get_scale_min_k4``)."""
    one, two, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate((one & 63, (rest & 15) | ((one >> 2) & 48)), axis=1)
    return scales, np.concatenate((two & 63, (rest >> 4) | ((two >> 2) & 48)), axis=1)


def _q4_k(blocks: Array) -> Told:
    scales, minima = _six_bits(blocks[:, 4:16])
    codes = _nibbles(blocks[:, 16:].reshape(-1, 4, 32))
    return _grouped(codes, scales * _halves(blocks, 0), minima * _halves(blocks, 2))


def _q5_k(blocks: Array) -> Told:
    scales, minima = _six_bits(blocks[:, 4:16])
    high = (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1)) & 1
    codes = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | (high << np.uint8(4))
    return _grouped(codes, scales * _halves(blocks, 0), minima * _halves(blocks, 2))


def _q6_k(blocks: Array) -> Told:
    lower = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 256)
    lower |= _two_bits(blocks[:, 128:192], 4).reshape(-1, 256)
    codes = lower.view(np.int8)
    codes -= np.int8(32)
    return _grouped(codes, blocks[:, 192:208].view(np.int8) * _halves(blocks, 208))


def _iq4_xs(blocks: Array) -> Told:
    upper = np.ascontiguousarray(blocks[:, 2:4]).view(np.uint16) >> np.arange(0, 16, 2, dtype=np.uint16)
    lower = blocks[:, 4:8, None] >> np.array([0, 4], np.uint8)
    scales = (lower.reshape(-1, 8) & 15) | ((upper & 3).astype(np.uint8) << np.uint8(4))
    codes = _NOT_LINEAR[_nibbles(blocks[:, 8:].reshape(-1, 8, 16))]
    made, steps = _grouped(codes, (scales.view(np.int8) - np.int8(32)) * _halves(blocks, 0))
    return made, steps * np.float32(_WIDEST_NOT_LINEAR)


LEVELS: dict[str, Callable[[Array], Told]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "IQ4_NL": _iq4_nl,
    "MXFP4": _mxfp4,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_XS": _iq4_xs,
}

# the largest code times the largest scale of a group: what the rounding of a block's own scale, a float16, is times
REACH = {
    "Q8_0": 127,
    "Q4_0": 8,
    "Q4_1": 16,
    "Q5_0": 16,
    "Q5_1": 32,
    "IQ4_NL": 127,
    "MXFP4": 0,
    "Q2_K": 60,
    "Q3_K": 128,
    "Q4_K": 1008,
    "Q5_K": 2016,
    "Q6_K": 4096,
    "IQ4_XS": 4096,
}
