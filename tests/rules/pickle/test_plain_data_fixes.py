"""The fixes of P201, P202 and P203 on real checkpoints: afterwards torch loads them without being told anything."""

from __future__ import annotations

import argparse
import collections
import datetime
import pathlib
import types

import numpy as np
import pytest
import torch

from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from tests.rules.examined import torch_error


def fixed(path):
    output = path.with_name("fixed.pt")
    repair(plan(FixRequest(str(path), str(output))))
    return torch.load(output)


def test_a_training_checkpoint_loads_after_the_repair(tmp_path):
    """Every object is the plain data that it was, and everything else is as it was, ties included."""
    weight = torch.randn(3, 3)
    config = argparse.Namespace(
        lr=0.1,
        betas=(0.9, 0.999),
        out=pathlib.PurePosixPath("/runs/a"),
        nested=types.SimpleNamespace(best=np.float32(0.1), names=["a", None], raw=b"\0\xff"),
        empty=argparse.Namespace(),
    )
    contents = {
        "model": collections.OrderedDict(w=weight, tied=weight),
        "args": config,
        "again": config,
        "best": [np.float64(0.25), np.int64(-3), np.bool_(True)],
        "when": datetime.datetime(2024, 5, 1, 12, 30),
        "epoch": 3,
    }
    torch.save(contents, tmp_path / "a.pt")
    torch_error(tmp_path / "a.pt")
    loaded = fixed(tmp_path / "a.pt")
    args = {
        "lr": 0.1,
        "betas": (0.9, 0.999),
        "out": "/runs/a",
        "nested": {"best": np.float32(0.1).item(), "names": ["a", None], "raw": b"\0\xff"},
        "empty": {},
    }
    assert loaded["args"] == loaded["again"] == args
    assert (loaded["best"], loaded["when"], loaded["epoch"]) == ([0.25, -3, True], "2024-05-01T12:30:00", 3)
    assert [type(each) for each in loaded["best"]] == [float, int, bool]
    assert torch.equal(loaded["model"]["w"], weight)
    assert loaded["model"]["w"].data_ptr() == loaded["model"]["tied"].data_ptr()


@pytest.mark.parametrize("protocol", [2, 3])
def test_many_scalars_of_a_history(tmp_path, protocol):
    """A list of a thousand NumPy losses, in both ways in which pickle writes their bytes."""
    losses = np.random.default_rng(0).standard_normal(1000)
    torch.save({"w": torch.ones(2), "losses": list(losses)}, tmp_path / "a.pt", pickle_protocol=protocol)
    repair(plan(FixRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt"))))
    assert torch.load(tmp_path / "b.pt", weights_only=False)["losses"] == losses.tolist()


def test_what_cannot_be_converted_stays_as_it_is(tmp_path):
    """Arrays and time zones are left alone, and so is what torch then still refuses."""
    zone = datetime.timezone(datetime.timedelta(hours=2))
    contents = {"best": np.float64(1.5), "mean": np.arange(3), "when": datetime.datetime(2024, 5, 1, tzinfo=zone)}
    torch.save(contents, tmp_path / "a.pt")
    repair(plan(FixRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt"))))
    loaded = torch.load(tmp_path / "b.pt", weights_only=False)
    assert type(loaded["best"]) is float
    assert loaded["when"] == contents["when"]
    assert np.array_equal(loaded["mean"], contents["mean"])
