"""Checksums by NumPy are those of zlib."""

from __future__ import annotations

import zlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.values.crc32 import Folding, combined


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.sampled_from([0, 1, 3, 4, 77, 1 << 12, 166_712, 199_844, 366_556, 1 << 19, 700_004]), max_size=6),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_runs_of_any_length(sizes, before, seed, zeros):
    """In pieces of any sizes, after any bytes; one run after another."""
    random = np.random.default_rng(seed)
    folding = Folding()
    for _ in range(2):
        data = random.integers(0, 256, sum(sizes), np.uint8)
        if zeros:
            data[: data.size // 2] = 0
        folding.begin(before)
        at = 0
        for size in sizes:
            folding.room(size)[:] = data[at : at + size]
            folding.take(size)
            at += size
        assert folding.crc() == zlib.crc32(data.data, before)
        assert folding.crc() == zlib.crc32(data.data, before)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.binary(max_size=3_000))
def test_checksums_of_parts_are_put_together(one, other):
    """As zlib would have it of both, one behind the other."""
    assert combined(zlib.crc32(one), zlib.crc32(other), len(other)) == zlib.crc32(one + other)
