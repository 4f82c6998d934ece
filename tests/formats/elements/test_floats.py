"""Numbers of tensors as Python's and back: held against torch, and against exact fractions where that rounds twice."""

from __future__ import annotations

import struct
from fractions import Fraction
from math import isfinite, isinf, isnan, nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.formats.elements.floats import decoded, encoded

DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def _torch(data: bytes, dtype: str) -> list[float]:
    return torch.frombuffer(bytearray(data), dtype=DTYPES[dtype]).double().tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_half_is_read_and_written_as_it_is(dtype: str) -> None:
    """All 65,536 of them, subnormal and infinite ones too; NaNs stay NaNs."""
    data = struct.pack("<65536H", *range(65536))
    numbers = decoded(data, dtype)
    for one, other in zip(numbers, _torch(data, dtype), strict=True):
        assert one == other or (isnan(one) and isnan(other))
    again = decoded(encoded(numbers, dtype), dtype)
    assert all(one == other or (isnan(one) and isnan(other)) for one, other in zip(numbers, again, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@given(values=st.lists(st.floats(width=64), max_size=50))
def test_numbers_are_rounded_once_to_the_nearest(dtype: str, values: list[float]) -> None:
    """No neighbour of the result is nearer to the number; what is too large becomes infinite, and signs stay."""
    found = decoded(encoded(values, dtype), dtype)
    bits = {"float64": (11, 52), "float32": (8, 23), "float16": (5, 10), "bfloat16": (8, 7)}[dtype]
    for value, made in zip(values, found, strict=True):
        if not isfinite(value):
            assert (isnan(value) and isnan(made)) or value == made
            continue
        assert str(made).startswith("-") == str(value).startswith("-")
        assert made == _exact(value, *bits)


def _exact(value: float, exponent: int, mantissa: int) -> float:
    """Rounded with fractions: half to even."""
    least = 2 - 2 ** (exponent - 1)
    whole = Fraction(value)
    power = least
    while abs(whole) >= Fraction(2) ** (power + 1):
        power += 1
    unit = Fraction(2) ** (power - mantissa)
    rounded = round(whole / unit) * unit
    if abs(rounded) >= Fraction(2) ** (2 ** (exponent - 1)):
        return float("-inf") if value < 0 else float("inf")
    return float(rounded)


def test_a_tie_of_float32_is_none_of_float64() -> None:
    """A number just above half way is rounded up, though as a float32 it lies half way."""
    half = 1 + 2.0**-8
    assert decoded(encoded([half, half * (1 + 2.0**-40), half * (1 - 2.0**-40)], "bfloat16"), "bfloat16").tolist() == [
        1.0,
        1 + 2.0**-7,
        1.0,
    ]


def test_odd_numbers_do_not_disturb_their_neighbours() -> None:
    """NaNs with every bit set beside others, and numbers that are too large for a half."""
    odd = struct.unpack("<d", b"\xff" * 8)[0]
    found = decoded(encoded([1.0, odd, 2.0, -nan, 3.0], "bfloat16"), "bfloat16")
    assert [found[0], found[2], found[4]] == [1.0, 2.0, 3.0]
    assert isnan(found[1])
    assert isnan(found[3])
    large = decoded(encoded([1.0, 1e5, -1e9], "float16"), "float16")
    assert large[0] == 1.0
    assert isinf(large[1])
    assert large[2] < 0
