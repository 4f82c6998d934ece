"""Elements as data, held against torch: any chain of permute, narrow, cat and reshape, written and proven."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint import Extent
from ckptdoctor.edits.elements import Elements, Joined, Reshaped, View, joined, narrowed, nbytes, permuted, reshaped
from ckptdoctor.errors import RefusedError, WriteError
from ckptdoctor.formats.elements import chunks
from ckptdoctor.prove.elements import require_elements

WIDTHS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def whole(tensor: torch.Tensor, name: str = "w", start: int = 0) -> View:
    return View(name, start, tensor.dtype.itemsize, tuple(tensor.shape), tuple(tensor.stride()))


def raw(tensor: torch.Tensor) -> bytes:
    return bytes(torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor).untyped_storage())


def beyond_views(made: Elements) -> bool:
    """Whether a part of it has a shape that no view can have: further edits are refused."""
    return isinstance(made, Reshaped) or (isinstance(made, Joined) and any(map(beyond_views, made.parts)))


@st.composite
def chains(draw: st.DrawFn) -> tuple[bytes, torch.Tensor, Elements]:
    """A storage, what torch makes of it, and the same as data."""
    dtype = WIDTHS[draw(st.sampled_from(sorted(WIDTHS)))]
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    count = torch.Size(shape).numel() * dtype.itemsize
    base = torch.randint(0, 256, (count,), dtype=torch.uint8).view(dtype).reshape(shape)
    tensor, made = base, whole(base)
    for _ in range(draw(st.integers(0, 5))):
        step = draw(st.sampled_from(["permute", "narrow", "cat", "unit", "flat"]))
        dim = draw(st.integers(0, tensor.dim() - 1))
        if step == "permute":
            dims = draw(st.permutations(range(tensor.dim())))
            tensor, made = tensor.permute(dims), permuted(made, dims)
        elif step == "narrow":
            start = draw(st.integers(0, tensor.shape[dim] - 1))
            stop = draw(st.integers(start + 1, tensor.shape[dim]))
            tensor, made = tensor.narrow(dim, start, stop - start), narrowed(made, dim, start, stop)
        elif step == "cat":
            start = draw(st.integers(0, tensor.shape[dim] - 1))
            tail, end = (
                narrowed(made, dim, start, tensor.shape[dim]),
                tensor[(slice(None),) * dim + (slice(start, None),)],
            )
            tensor, made = torch.cat([end, tensor], dim), joined([tail, made], dim)
        elif step == "unit" and tensor.dim() < 6:
            tensor = tensor.unsqueeze(dim)
            made = reshaped(made, tuple(tensor.shape))
        elif step == "flat":
            shape = tuple(draw(st.sampled_from([(-1, tensor.shape[-1]), (1, -1), (tensor.shape[0], -1)])))
            tensor = tensor.reshape(shape)
            made = reshaped(made, tuple(tensor.shape))
            if beyond_views(made):
                break
    return raw(base), tensor, made


@given(chains(), st.integers(16, 200))
@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_chains_of_edits_give_what_torch_gives(tmp_path: Path, chain: tuple[bytes, torch.Tensor, Elements], block: int):
    """However small the blocks are; and the proof agrees, but not with any other byte."""
    require_what_torch_gives(tmp_path, chain, block)


@pytest.mark.slow
@given(chains(), st.integers(16, 200))
@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_more_chains_of_edits_give_what_torch_gives(
    tmp_path: Path, chain: tuple[bytes, torch.Tensor, Elements], block: int
):
    """The same of three times as many."""
    require_what_torch_gives(tmp_path, chain, block)


def require_what_torch_gives(tmp_path: Path, chain: tuple[bytes, torch.Tensor, Elements], block: int) -> None:
    """The bytes of a chain, and that its proof agrees with them and with no others."""
    storage, tensor, made = chain
    assert made.shape == tuple(tensor.shape)
    found = b"".join(chunks(made, lambda _, offset, length: storage[offset : offset + length], block))
    assert found == raw(tensor)
    assert len(found) == nbytes(made)
    file = tmp_path / "bytes"
    file.write_bytes(storage + found)
    places = {"w": Extent(str(file), 0, len(storage))}
    place = Extent(str(file), len(storage), len(found))
    require_elements(made, places, place)
    at = len(storage) + block % len(found)
    with open(file, "r+b") as opened:
        opened.seek(at)
        opened.write(bytes([found[block % len(found)] ^ 1]))
    with pytest.raises(WriteError, match="differ in the output"):
        require_elements(made, places, place)


def test_parts_that_continue_each_other_are_one_view():
    """So that what is split and fused again is a copy."""
    view = whole(torch.zeros(8, 3))
    assert joined([narrowed(view, 0, start, start + 2) for start in range(0, 8, 2)], 0) == view


def test_a_shape_that_no_view_has_comes_last():
    """What would follow is refused with what to do."""
    turned = reshaped(permuted(whole(torch.zeros(4, 6)), (1, 0)), (24,))
    assert isinstance(turned, Reshaped)
    with pytest.raises(RefusedError, match="separately"):
        narrowed(turned, 0, 0, 3)
    with pytest.raises(RefusedError, match="separately"):
        permuted(reshaped(turned, (3, 8)), (1, 0))
    assert reshaped(turned, (6, 4)) == permuted(whole(torch.zeros(4, 6)), (1, 0))
