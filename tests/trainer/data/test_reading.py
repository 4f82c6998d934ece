"""Reading files of images exactly."""

from __future__ import annotations

import gzip
import io
import tracemalloc

import pytest

from ckptdoctor.errors import TruncatedError, UnreadableError
from ckptdoctor.trainer.data.reading import Source, opened


def test_a_claim_costs_no_memory(tmp_path):
    """A gibibyte that is claimed of a small file is not reserved."""
    (tmp_path / "small").write_bytes(bytes(1000))
    tracemalloc.start()
    try:
        with pytest.raises(TruncatedError), opened(tmp_path / "small") as source:
            source.take(2**30, "what it claims")
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


def test_what_unpacks_to_much_more_is_read_no_further_than_asked(tmp_path):
    """A bomb of gzip costs what is taken from it."""
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes(100 * 2**20), compresslevel=1))
    tracemalloc.start()
    try:
        with opened(tmp_path / "bomb") as source:
            assert len(source.take(10, "ten bytes")) == 10
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


def test_positions_count_contents(tmp_path):
    """The position is that of what gzip has unpacked."""
    (tmp_path / "file").write_bytes(gzip.compress(bytes(range(100))))
    with opened(tmp_path / "file") as source:
        assert source.take(30, "some") == bytes(range(30)) and source.position == 30
        assert source.take_most(1000) == bytes(range(30, 100)) and source.position == 100
        source.end()


def test_a_disk_that_fails_is_a_sentence():
    """An error of the operating system in the middle of a file is an UnreadableError."""

    class Failing(io.RawIOBase):
        def read(self, count=-1, /):
            raise OSError(5, "Input/output error")

    with pytest.raises(UnreadableError, match=r"images\.bin cannot be read: Input/output error"):
        Source(Failing(), "images.bin").take(1, "anything")
