"""Checksums by NumPy are those of zlib."""

from __future__ import annotations

import zlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.values.crc32 import combined, crc32_over


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from([0, 1, 3, 77, 91_638, 1 << 18, 366_556, 366_557, 700_004, 1 << 20, 5_864_896, 6_700_001]),
    st.integers(0, 64),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_bytes_of_any_length(size, more, before, seed, zeros):
    """After any others, from any place in memory."""
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, size + more, np.uint8)
    if zeros:
        data[: data.size // 2] = 0
    data = data[more // 2 :]
    expected = zlib.crc32(data.data, before)
    assert crc32_over(data, before) == expected


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.binary(max_size=3_000))
def test_checksums_of_parts_are_put_together(one, other):
    """As zlib would have it of both, one behind the other."""
    assert combined(zlib.crc32(one), zlib.crc32(other), len(other)) == zlib.crc32(one + other)
