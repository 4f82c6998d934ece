from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.formats.elements.gather import gather

DTYPES = [torch.int8, torch.int16, torch.int32, torch.int64, torch.complex128]


def gathered(view, block):
    """The bytes that gather makes, with the longest read and the longest chunk."""
    data = bytes(view.untyped_storage())
    reads = []

    def read(offset, length):
        assert offset >= 0
        assert offset + length <= len(data)
        reads.append(length)
        return data[offset : offset + length]

    chunks = list(gather(read, tuple(view.shape), view.stride(), view.storage_offset(), view.itemsize, block))
    return b"".join(chunks), max(reads, default=0), max(map(len, chunks), default=0)


def bytes_of(view):
    return view.numpy().tobytes()


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_view_is_gathered_exactly(data):
    """Whatever permutation, slice or expansion, and however small the block: the bytes are those in C order."""
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = data.draw(st.lists(st.integers(1, 6), max_size=4))
    view = torch.arange(max(1, torch.Size(shape).numel())).to(dtype).view(shape)
    view = view.permute(data.draw(st.permutations(range(len(shape)))))
    for axis in range(view.dim()):
        view = view.narrow(axis, start := data.draw(st.integers(0, view.shape[axis] - 1)), view.shape[axis] - start)
    if data.draw(st.booleans()):
        view = view.unsqueeze(-1).expand(*view.shape, 3)
    got, _, longest = gathered(view, block := data.draw(st.sampled_from([16, 64, 1 << 20])))
    assert got == bytes_of(view)
    assert longest <= max(block, view.itemsize)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_nothing_is_gathered_from_an_empty_view(shape):
    """A view without elements has no bytes, and nothing is read."""
    assert gathered(torch.empty(shape), 64) == (b"", 0, 0)


@pytest.mark.slow
def test_memory_is_bounded_for_a_transposed_matrix():
    """Columns of a matrix that is many blocks long come in chunks of a block, read in pieces of two blocks at most."""
    matrix = torch.arange(512 * 512, dtype=torch.int32).view(512, 512)
    got, read, chunk = gathered(matrix.t(), 1 << 14)
    assert got == bytes_of(matrix.t())
    assert read <= 2 << 14
    assert chunk <= 1 << 14


def test_chunks_can_be_made_again():
    """The same plan read twice gives the same bytes."""
    view = torch.arange(24).view(4, 6).t()
    assert gathered(view, 32) == gathered(view, 32)
