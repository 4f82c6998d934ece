"""Whether float32 are rounded to given numbers of 16 bits is told as casting them tells it."""

from __future__ import annotations

import numpy as np
import pytest

from ckptdoctor.casting.arrays import widened
from ckptdoctor.casting.cast import cast_array, unlike_halves

FINITE = {"float16": 0x7C00, "bfloat16": 0x7F80}  # bits of the first positive one that is not
DTYPES = pytest.mark.parametrize("dtype", FINITE)


def every(dtype):
    """All finite numbers of this dtype, and the same in float32."""
    upper = np.arange(FINITE[dtype], dtype=np.uint16)
    held = np.concatenate((upper, upper | np.uint16(0x8000)))
    return held, widened(held, dtype)


@DTYPES
@pytest.mark.parametrize("away", [0, 1, -1, "to half", "below half", "above half", "a neighbour"])
def test_each_number_and_what_is_around_it(dtype, away):
    """So many float32 away from every number of 16 bits: at half of the distance, just below and just above it."""
    held, wide = every(dtype)
    half = 1 << (12 if dtype == "float16" else 15)
    steps = {"to half": half, "below half": half - 1, "above half": half + 1, "a neighbour": 2 * half}.get(away, away)
    for sign in (1, -1):
        bits = wide.view(np.int32).astype(np.int64) + sign * steps
        given = bits.astype(np.uint32).view(np.float32)
        there = np.isfinite(given) & ((bits >= 0) == (wide.view(np.int32) >= 0))
        if not there.all():
            assert (~there).sum() < 5 * half
        asked = given[there], held[there], wide[there]
        expected = np.flatnonzero(cast_array(asked[0], "float32", dtype) != asked[1])
        assert unlike_halves(*asked, dtype).tolist() == expected.tolist()


@DTYPES
def test_any_numbers_next_to_any_others(dtype):
    """Most of them are not what the others give, of all sizes and both signs; zeros too."""
    rng = np.random.default_rng(1)
    given = rng.integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32)
    given = given[np.isfinite(given)]
    given[::7] = np.float32(0.0)
    given[::14] = np.float32(-0.0)
    rounded = cast_array(given, "float32", dtype)
    held = np.where(rng.random(given.size) < 0.5, rounded, rng.integers(0, 1 << 16, given.size, dtype=np.uint16))
    there = (held & np.uint16(FINITE[dtype])) < FINITE[dtype]
    given, held, rounded = given[there], held[there], rounded[there]
    wide = widened(held, dtype)
    assert unlike_halves(given, held, wide, dtype).tolist() == np.flatnonzero(rounded != held).tolist()
    few = rng.choice(given.size, 100)
    normal = rng.standard_normal(given.size).astype(np.float32)
    held = cast_array(normal, "float32", dtype)
    held[few] ^= 1
    found = unlike_halves(normal, held, widened(held, dtype), dtype)
    assert found.tolist() == sorted(set(np.flatnonzero(cast_array(normal, "float32", dtype) != held).tolist()))
    assert found.size >= 90
