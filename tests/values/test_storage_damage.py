"""Holes in the bytes of one storage, which come in chunks."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint import Extent, Storage
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.values.damage import HOLE, PAGE
from ckptdoctor.values.storage_damage import Scan


def noise(length):
    return random.Random(0).randbytes(length).replace(b"\0", b"\1")


def holes_in(chunks):
    """The holes of a storage without checksum whose bytes come in these chunks."""
    length = sum(map(len, chunks))
    extent = Extent("f", 0, length)
    scan = Scan(Storage("0", length, BY_NAME["float32"], "cpu", extent), extent)
    for chunk in chunks:
        scan.feed(chunk)
    return [hole for damage in scan.damage() for hole in damage.holes]


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 60), st.integers(0, 3)), min_size=1, max_size=6),
    st.lists(st.integers(1, 40 * PAGE), max_size=6),
)
def test_runs_do_not_depend_on_the_chunks(pieces, cuts):
    """The same holes are found however the bytes are cut into chunks, and each is one."""
    data = b"".join([bytes(pages * PAGE) if zero else noise(pages * PAGE + extra) for zero, pages, extra in pieces])
    ends = [min(sum(cuts[:number]), len(data)) for number in range(len(cuts) + 1)]
    holes = holes_in([data])
    assert holes_in([data[start:end] for start, end in pairwise([*ends, len(data)])]) == holes
    for hole in holes:
        assert hole.length >= HOLE
        assert not any(data[hole.offset : hole.offset + hole.length])
        assert hole.offset == 0 or data[hole.offset - 1]
