"""Tensors that are split and fused in real files, and edits that build on each other."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from ckptdoctor.edits import (
    Compact,
    Drop,
    Fill,
    Fuse,
    Rename,
    Reshape,
    Split,
    Transpose,
)
from ckptdoctor.errors import RefusedError
from ckptdoctor.match.shapes import projections
from tests.repair.applying import repaired
from tests.repair.arranging import FORMATS, edited, loaded, random, same, written
from tests.repair.checkpoints import every_way, save, training


@FORMATS
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_split_gives_the_chunks_of_torch(tmp_path: Path, suffix: str, dim: int):
    """Each with a storage of its own, where the old one stood; fusing them again gives the old one."""
    contents = {"a": random((2,), torch.float32), "qkv": random((6, 9, 3), torch.float32), "z": torch.ones(1)}
    third = contents["qkv"].shape[dim] // 3
    parts = tuple([(key, third * number, third * (number + 1)) for number, key in enumerate("qkv")])
    path = written(contents, tmp_path, suffix)
    outcome = repaired(path, [Split(("qkv",), parts, dim)])
    result = loaded(outcome.plan.output)
    if suffix == ".pt":
        assert list(result) == ["a", "q", "k", "v", "z"]
        assert len({each.untyped_storage().data_ptr() for each in result.values()}) == 5
        assert result["q"].untyped_storage().nbytes() == result["q"].nbytes
    for key, chunk in zip("qkv", contents["qkv"].chunk(3, dim), strict=True):
        assert same(result[key], chunk)
    back = repaired(Path(outcome.plan.output), [Fuse((("q",), ("k",), ("v",)), "qkv", dim)])
    again = loaded(back.plan.output)
    assert list(again) == list(loaded(path))
    assert all(same(again[key], each) for key, each in contents.items())


@FORMATS
@pytest.mark.parametrize(
    ("layout", "heads", "kv_heads"),
    [("q-k-v", 6, 6), ("q-k-v", 6, 2), ("k-v-q", 6, 3), ("per-head", 6, 6), ("grouped", 6, 2), ("grouped", 6, 6)],
)
def test_every_layout_of_queries_keys_and_values(tmp_path: Path, suffix: str, layout: str, heads: int, kv_heads: int):
    """Splitting gives the heads in their order, fusing gives the projection back, weights and biases alike."""
    head_dim, hidden = 4, 5
    parts = {
        "q": random((heads, head_dim, hidden), torch.float32),
        "k": random((kv_heads, head_dim, hidden), torch.float32),
        "v": random((kv_heads, head_dim, hidden), torch.float32),
    }
    flat = {key: each.reshape(-1, hidden) for key, each in parts.items()}
    if layout in ("per-head", "grouped"):
        queries = parts["q"].reshape(kv_heads, -1, head_dim, hidden)
        groups = [torch.cat([queries[at].flatten(0, 1), parts["k"][at], parts["v"][at]]) for at in range(kv_heads)]
        fused = torch.cat(groups)
    else:
        fused = torch.cat([flat[key] for key in layout.split("-")])
    ranges = projections.rows(layout, heads, kv_heads, head_dim)
    names = {part: f"attn.{part}.weight" for part in "qkv"}
    split = Split(("attn.qkv.weight",), projections.split_parts(ranges, names))
    contents = {"x": torch.ones(2, 2), "attn.qkv.weight": fused}
    outcome = repaired(written(contents, tmp_path, suffix), [split])
    result = loaded(outcome.plan.output)
    for part, name in names.items():
        assert same(result[name], flat[part])
    fuse = Fuse(tuple([(name,) for name in names.values()]), "attn.qkv.weight", 0, projections.fuse_order(ranges))
    again = loaded(repaired(Path(outcome.plan.output), [fuse]).plan.output)
    assert same(again["attn.qkv.weight"], fused)


@given(st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_partition_can_be_split_off_and_fused_again(tmp_path: Path, data: st.DataObject):
    """Random ranges in random order, of tensors and of their views, with the same elements as indexing gives."""
    suffix = data.draw(st.sampled_from([".pt", ".safetensors"]))
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    dim = data.draw(st.integers(0, len(shape) - 1))
    tensor = random(shape, data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.bool, torch.int64])))
    if suffix == ".pt" and data.draw(st.booleans()):
        tensor = tensor.transpose(0, -1).contiguous().transpose(0, -1)
    cuts = sorted(data.draw(st.sets(st.integers(1, shape[dim]), max_size=4)) | {0, shape[dim]})
    ranges = data.draw(st.permutations(list(pairwise(cuts))))
    parts = tuple([(data.draw(st.sampled_from("abc")), start, stop) for start, stop in ranges])
    result = edited({"w": tensor}, tmp_path, suffix, Split(("w",), parts, dim))
    used = list(dict.fromkeys(key for key, _, _ in parts))
    assert sorted(result) == sorted(used)
    for key in used:
        index = [at for name, start, stop in parts if name == key for at in range(start, stop)]
        assert same(result[key], tensor.index_select(dim, torch.tensor(index)))
    order, passed = {}, dict.fromkeys(used, 0)
    for key, start, stop in parts:
        order[start] = (used.index(key), passed[key], passed[key] + stop - start)
        passed[key] += stop - start
    fuse = Fuse(tuple([(key,) for key in used]), "w", dim, tuple([order[start] for start in sorted(order)]))
    path = tmp_path / f"model.fixed{suffix}"
    assert same(loaded(repaired(path, [fuse], tmp_path / f"back{suffix}").plan.output)["w"], tensor)


def test_edits_build_on_each_other(tmp_path: Path):
    """A fused Conv1D of GPT-2 becomes three Linear layers: transposed, split, given other dimensions, renamed."""
    for suffix in (".pt", ".safetensors"):
        fused = random((4, 12), torch.float32)
        parts = (("q", 0, 4), ("k", 4, 8), ("v", 8, 12))
        edits = [
            *(Transpose(("w",)), Split(("w",), parts), Reshape(("q",), (4, 4, 1, 1)), Rename((), (("k", "key"),))),
            *(Transpose(("q",), (1, 0, 3, 2)), Fuse((("key",), ("v",)), "kv", 1), Transpose(("kv",)), Drop((("x",),))),
        ]
        result = edited({"w": fused, "x": torch.ones(3), "y": torch.ones(2)}, tmp_path, suffix, *edits)
        q, k, v = fused.t().chunk(3)
        assert same(result["q"], q.reshape(4, 4, 1, 1).permute(1, 0, 3, 2))
        assert same(result["kv"], torch.cat([k, v], 1).t())
        assert sorted(result) == ["kv", "q", "y"]


def test_shrunk_storages_are_put_together_from_what_is_left(tmp_path: Path):
    """Views of a storage that an edit before has cut down."""
    base = random((100, 4), torch.float32)
    contents = {"a": base[10:14], "b": base[50:56].t(), "c": base[90:92]}
    parts = (("b0", 0, 1), ("b1", 1, 4))
    edits = [Compact(("0",)), Transpose(("a",)), Split(("b",), parts), Fuse((("b0",), ("b1",)), "b", 0)]
    result = edited(contents, tmp_path, ".pt", *edits)
    assert same(result["a"], base[10:14].t())
    assert same(result["b"], base[50:56].t())
    assert same(result["c"], base[90:92])


NOT_ALL = {
    "the end is missing": (("a", 0, 2), ("b", 2, 3)),
    "the beginning is missing": (("a", 1, 2), ("b", 2, 4)),
    "one row twice": (("a", 0, 2), ("b", 1, 4)),
    "beyond the end": (("a", 0, 2), ("b", 2, 5)),
    "backwards": (("a", 0, 4), ("b", 4, 3)),
}


@FORMATS
@pytest.mark.parametrize("parts", NOT_ALL.values(), ids=NOT_ALL)
def test_parts_that_are_not_the_whole_are_refused(tmp_path: Path, suffix: str, parts):
    """Split and fused: each row goes to one place, or nothing is written."""
    contents = {"w": random((4, 3), torch.float32), "v": random((2, 3), torch.float32)}
    with pytest.raises(RefusedError, match="do not cover its 4 indices exactly once"):
        edited(contents, tmp_path, suffix, Split(("w",), parts))
    order = ((1, 0, 2), *[(0, start, stop) for _, start, stop in parts])
    with pytest.raises(RefusedError, match="do not cover its 4 indices exactly once"):
        edited(contents, tmp_path, suffix, Fuse((("w",), ("v",)), "new", 0, order))
    with pytest.raises(RefusedError, match="names missing tensors"):
        edited(contents, tmp_path, suffix, Fuse((("w",), ("v",)), "new", 0, ((0, 0, 4), (2, 0, 2))))
    assert [each.name for each in tmp_path.iterdir()] == [f"model{suffix}"]


def test_parameters_stay_parameters(tmp_path: Path):
    """Their class and requires_grad come along into the parts; attributes of the state dict stay."""
    state = OrderedDict(
        w=nn.Parameter(random((4, 4), torch.float32)), n=nn.Parameter(torch.ones(2), requires_grad=False)
    )
    state._metadata = OrderedDict({"": {"version": 1}})
    edits = [Split(("w",), (("a", 0, 1), ("b", 1, 4))), Reshape(("n",), (2, 1))]
    result = edited(state, tmp_path, ".pt", *edits)
    assert [type(each) for each in result.values()] == [nn.Parameter] * 3
    assert [each.requires_grad for each in result.values()] == [True, True, False]
    assert result._metadata == state._metadata
    assert same(result["b"], state["w"][1:])
    assert result["a"]._backward_hooks is not result["b"]._backward_hooks or result["a"]._backward_hooks is None


def test_a_whole_training_run_keeps_everything_else(tmp_path: Path):
    """Optimizer, scheduler, random states and epoch; loaded in every way that torch offers."""
    path = save(training(), tmp_path / "run.pt")
    before = torch.load(path, weights_only=False)
    model = before["state_dict"]
    place = ("state_dict",)
    edits = [
        Transpose((*place, "mlp_module.0.weight")),
        Split((*place, "mlp_module.0.bias"), (("mlp_module.0.bias0", 0, 3), ("mlp_module.0.bias1", 3, 4))),
        Reshape((*place, "conv1.weight"), (2, 9)),
        Fill((*place, "bn1.extra"), "float32", (3,), 1.0),
    ]
    outcome = repaired(path, edits)
    for load in every_way(outcome.plan.output):
        after = load()
        assert list(after) == list(before)
        assert after["state_dict"]._metadata == model._metadata
        changed = after["state_dict"]
        assert same(changed["mlp_module.0.weight"], model["mlp_module.0.weight"].t())
        assert same(changed["mlp_module.0.bias1"], model["mlp_module.0.bias"][3:])
        assert same(changed["conv1.weight"], model["conv1.weight"].reshape(2, 9))
        assert list(changed).index("bn1.extra") == list(changed).index("bn1.num_batches_tracked") + 1
        assert changed["head.weight"].data_ptr() == changed["mlp_module.2.weight"].data_ptr()
        for name, state in before["optimizer"]["state"].items():
            assert all(same(after["optimizer"]["state"][name][key], each) for key, each in state.items())
        assert torch.equal(after["rng"], before["rng"])
