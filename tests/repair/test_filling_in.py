"""New tensors in real files: where they stand, what they hold, what they may not."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import nn

from ckptdoctor.edits import (
    Fill,
)
from ckptdoctor.errors import RefusedError
from ckptdoctor.repair.repair import repair
from tests.repair.applying import planned, planned_steps
from tests.repair.arranging import FORMATS, edited, loaded, random, same, written


@FORMATS
def test_a_missing_counter_is_filled_in_behind_its_siblings(tmp_path: Path, suffix: str):
    """``num_batches_tracked``: an int64 without dimensions, for every batch norm that lacks it."""
    net = nn.Sequential(OrderedDict(a=nn.BatchNorm1d(2), b=nn.BatchNorm1d(3), c=nn.Linear(2, 2)))
    whole = net.state_dict()
    old = OrderedDict((key, value) for key, value in whole.items() if "num_batches" not in key)
    old._metadata = whole._metadata
    edits = [Fill((f"{name}.num_batches_tracked",), "int64", (), 0) for name in "ab"]
    result = edited(old, tmp_path, suffix, *edits)
    if suffix == ".pt":
        assert list(result) == list(whole)
        assert result._metadata == whole._metadata
    nn.Module.load_state_dict(net, result, strict=True)
    assert all(same(result[key], value) for key, value in whole.items())


@FORMATS
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *(("float32", 1.0), ("float64", 0.1), ("bfloat16", 1), ("float16", -2.5), ("bool", True), ("uint8", 255)),
        *(("float8_e4m3fn", 0), ("int16", -1), ("complex64", 1), ("uint64", 2**64 - 1), ("float32", float("inf"))),
    ],
)
def test_fills_of_every_dtype(tmp_path: Path, suffix: str, dtype: str, value: float):
    """What ``torch.full`` gives, aligned so that every reader takes it."""
    contents = {"x.weight": random((3,), torch.float16), "x.odd": random((3,), torch.int8)}
    result = edited(contents, tmp_path, suffix, Fill(("x.new",), dtype, (2, 3), value))
    wanted = torch.full((2, 3), value, dtype=getattr(torch, dtype) if value else None).to(getattr(torch, dtype))
    assert same(result["x.new"], wanted)
    assert all(same(result[key], each) for key, each in contents.items())


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float32", 0.1), ("int8", 128), ("int64", 0.5), ("bool", 2), ("float8_e5m2", 1.0), ("float8_e8m0fnu", 0)],
)
def test_values_that_a_dtype_cannot_hold_are_refused(tmp_path: Path, dtype: str, value: float):
    """Nothing is rounded."""
    path = written({"x": torch.ones(2)}, tmp_path, ".pt")
    with pytest.raises(RefusedError, match="cannot hold it"):
        planned(path, [Fill(("y",), dtype, (2,), value)])


@FORMATS
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_a_fill_without_elements(tmp_path: Path, suffix: str, shape: tuple[int, ...]):
    """A tensor may have no elements: it has its shape and dtype, and a storage of no bytes."""
    result = edited({"x.old": torch.ones(2)}, tmp_path, suffix, Fill(("x.new",), "float16", shape, 0.0))
    assert same(result["x.new"], torch.zeros(shape, dtype=torch.float16))
    assert same(result["x.old"], torch.ones(2))


def test_a_large_fill_is_not_made_in_memory_at_once(tmp_path: Path):
    """Its bytes are made while they are written."""
    path = written({"x": torch.ones(2)}, tmp_path, ".safetensors")
    recipe = planned(path, [Fill(("y",), "float32", (1 << 20, 1 << 14), 1.0)]).recipe
    assert recipe is not None
    assert recipe.size > 1 << 36


def test_many_fills_go_in_the_order_of_one_by_one(tmp_path: Path):
    """All at once or each in a step of its own: the same keys in the same order."""
    contents = {key: torch.ones(1) for key in ("m.a.w", "m.b.w", "head", "m.c.w")}
    keys = ["m.a.n", "m.a.o", "m.b.n", "x.y", "z", "x.z", "m.d.w", "m.d.n"]
    edits = [Fill((key,), "int64", (), 0) for key in keys]
    for suffix in (".pt", ".safetensors"):
        path = written(contents, tmp_path, suffix)
        one = repair(planned(path, edits, tmp_path / f"one{suffix}"))
        two = repair(planned_steps(path, [[edit] for edit in edits], tmp_path / f"two{suffix}"))
        orders = [list(loaded(each.plan.output)) for each in (one, two)]
        assert orders[0] == orders[1]
        if suffix == ".pt":
            assert orders[0][:5] == ["m.a.w", "m.a.n", "m.a.o", "m.b.w", "m.b.n"]
