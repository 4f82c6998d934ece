"""Chunks of a tensor must be the whole of it, once."""

from __future__ import annotations

import pytest

from ckptdoctor.formats.folders.coverage import uncovered

CASES = [
    ((4, 2), [((0, 0), (2, 2)), ((2, 0), (2, 2))], ""),
    ((4, 2), [((0, 0), (4, 1)), ((0, 1), (4, 1))], ""),
    ((4, 2), [((0, 0), (2, 1)), ((0, 1), (2, 1)), ((2, 0), (2, 2))], ""),
    ((), [((), ())], ""),
    ((0, 3), [((0, 0), (0, 3))], ""),
    ((4, 2), [((0, 0), (2, 2))], "4 of 8 elements are in no chunk"),
    ((4, 2), [((0, 0), (3, 2)), ((1, 0), (1, 2))], "some of its chunks overlap"),
    ((4, 2), [((0, 0), (2, 2)), ((0, 0), (2, 2))], "some of its chunks overlap"),
    ((4,), [((2,), (3,))], "a chunk that begins at [2] reaches past its end"),
    ((0,), [], "it has no chunks"),
    ((), [((), ()), ((), ())], "some of its chunks overlap"),
]


@pytest.mark.parametrize(("size", "chunks", "wrong"), CASES)
def test_what_is_wrong_with_chunks(size, chunks, wrong):
    """Holes, overlaps and chunks beyond the end are told; grids of any kind are well."""
    assert uncovered(size, chunks) == wrong


def test_many_chunks_in_a_row():
    """A hundred thousand chunks along either side are not compared in pairs."""
    assert uncovered((1, 100_000), [((0, index), (1, 1)) for index in range(100_000)]) == ""
    assert uncovered((100_000, 1), [((index, 0), (1, 1)) for index in range(100_000)]) == ""


def test_more_chunks_than_any_grid_of_ranks():
    """What would take long to compare is given up on."""
    chunks = [((row, column), (1, 1)) for row in range(120) for column in range(120)]
    assert uncovered((120, 120), chunks) == "some of its chunks overlap"
