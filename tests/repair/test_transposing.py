"""Tensors that are transposed and reshaped in real files, held against torch itself."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckptdoctor.edits import (
    MakeContiguous,
    Reshape,
    Transpose,
)
from ckptdoctor.repair.repair import repair
from tests.repair.applying import assert_all_proven, planned_steps, repaired
from tests.repair.arranging import DTYPES, FORMATS, edited, loaded, random, same, written


@FORMATS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_transpose_gives_what_torch_gives(tmp_path: Path, suffix: str, dtype: torch.dtype):
    """``w.t()`` with elements of every width; its neighbours stay as they were."""
    if suffix == ".safetensors" and dtype is torch.complex128:
        pytest.skip("safetensors has no complex128")
    contents = {"a": random((3,), dtype), "w": random((5, 7), dtype), "z": random((2, 2), dtype)}
    result = edited(contents, tmp_path, suffix, Transpose(("w",)))
    assert list(result) == list(contents)
    assert result["w"].is_contiguous()
    assert same(result["w"], contents["w"].t())
    assert same(result["a"], contents["a"])
    assert same(result["z"], contents["z"])


@FORMATS
@pytest.mark.parametrize("dims", list(permutations(range(4))), ids=str)
def test_every_permutation_of_four_dimensions(tmp_path: Path, suffix: str, dims: tuple[int, ...]):
    """Convolutions of other libraries have their dimensions in other orders."""
    contents = {"conv": random((2, 3, 4, 5), torch.float32), "empty": torch.zeros(2, 0, 3, 1)}
    result = edited(contents, tmp_path, suffix, Transpose(("conv",), dims), Transpose(("empty",), dims))
    assert same(result["conv"], contents["conv"].permute(dims))
    assert same(result["empty"], contents["empty"].permute(dims))


@given(st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_views_of_any_kind_are_transposed(tmp_path: Path, data: st.DataObject):
    """Slices, steps, expanded and permuted views of one storage; those that are not named stay on it."""
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    base = random(tuple(sizes), data.draw(st.sampled_from(DTYPES)))
    views = {"base": base}
    for name in "abc":
        view = base
        for dim, size in enumerate(sizes):
            start = data.draw(st.integers(0, size - 1))
            view = view[(slice(None),) * dim + (slice(start, None, data.draw(st.integers(1, 3))),)]
        view = view.permute(data.draw(st.permutations(range(view.dim()))))
        views[name] = view.unsqueeze(0).expand(2, *view.shape) if data.draw(st.booleans()) else view
    dims = {name: tuple(data.draw(st.permutations(range(views[name].dim())))) for name in "ab"}
    edits = [Transpose((name,), dims[name]) for name in "ab"]
    edits = [*edits, MakeContiguous((("c",),))] if data.draw(st.booleans()) else edits
    result = edited(views, tmp_path, ".pt", *edits)
    for name, view in views.items():
        assert same(result[name], view.permute(dims[name]) if name in dims else view)


def test_what_is_tied_stays_as_it_was(tmp_path: Path):
    """One name of a shared storage is transposed, the other keeps its elements; two that are both stay tied."""
    table = random((4, 6), torch.float32)
    one, two = edited({"a": table, "b": table}, tmp_path, ".pt", Transpose(("a",))).values()
    assert same(one, table.t())
    assert same(two, table)
    one, two = edited({"a": table, "b": table}, tmp_path, ".pt", Transpose(("a",)), Transpose(("b",))).values()
    assert same(one, table.t())
    assert one.data_ptr() == two.data_ptr()


@pytest.mark.parametrize("steps", [1, 2])
def test_ties_do_not_depend_on_how_edits_are_grouped(tmp_path: Path, steps: int):
    """The same edits in one step or in two give the same file."""
    table = random((4, 6), torch.float32)
    path = written({"a": table, "b": table}, tmp_path, ".pt")
    edits = [Transpose(("a",)), Transpose(("b",))]
    outcome = repair(planned_steps(path, [edits] if steps == 1 else [[each] for each in edits]))
    assert_all_proven(outcome)
    assert len({each.data_ptr() for each in loaded(outcome.plan.output).values()}) == 1


@FORMATS
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((), (1,)),
        ((1,), ()),
        ((4,), (1, 4, 1, 1)),
        ((1, 4, 1, 1), (4,)),
        ((6, 4), (6, 4, 1, 1)),
        ((6, 4), (2, 12)),
        ((0, 3), (3, 0, 7)),
    ],
)
def test_a_reshape_changes_no_byte_of_the_elements(tmp_path: Path, suffix: str, old: tuple, new: tuple):
    """The elements lie where they lay; only their shape is told anew."""
    contents = {"w": random(old, torch.bfloat16), "x": random((3, 3), torch.float32)}
    path = written(contents, tmp_path, suffix)
    outcome = repaired(path, [Reshape(("w",), new)])
    assert outcome.proof is not None
    assert outcome.proof.remade == 0
    result = loaded(outcome.plan.output)
    assert same(result["w"], contents["w"].reshape(new))
    assert same(result["x"], contents["x"])


def test_a_reshape_of_a_view_with_gaps_gets_a_storage_of_its_own(tmp_path: Path):
    """As ``Tensor.reshape`` copies where it must; the others on that storage keep it."""
    base = random((6, 4), torch.float32)
    result = edited({"base": base, "t": base.t()}, tmp_path, ".pt", Reshape(("t",), (24,)))
    assert same(result["t"], base.t().reshape(24))
    assert same(result["base"], base)
