"""Weights of quanto and HQQ, as these libraries themselves save them."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from tests.commands import run
from tests.libraries import real
from tests.oracles.conftest import library


def net():
    """Two layers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 128))


def said(tmp_path, state, like):
    """The rules that speak of a file towards a plain target, and what fix writes of it."""
    torch.save(state, tmp_path / "codes.pt")
    torch.save(like, tmp_path / "plain.pt")
    done = run("check", "codes.pt", "--like", "plain.pt", "--format", "json", cwd=tmp_path)
    fixed = [run("fix", "codes.pt", "--like", "plain.pt", "-o", "out.pt", *more, cwd=tmp_path).returncode
             for more in ((), ("--unsafe-fixes",))]  # fmt: skip
    assert fixed == [1, 1]
    assert not (tmp_path / "out.pt").exists()
    [file] = json.loads(done.stdout)["files"]
    return {found["code"]: found["message"] for found in file["findings"]}


@real
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "told"), [("qint8", "quanto, int8"), ("qint4", "several numbers to a byte")])
def test_quanto_is_named_and_its_codes_are_not_renamed(tmp_path, kind, told):
    """Frozen weights of eight and of four bits."""
    quanto = library("optimum.quanto")
    model = net()
    like = {key: value.clone() for key, value in model.state_dict().items()}
    quanto.quantize(model, weights=getattr(quanto, kind))
    quanto.freeze(model)
    assert told in said(tmp_path, dict(model.state_dict()), like)["Q960"]


@pytest.mark.slow
def test_hqq_is_named_and_its_codes_are_not_renamed(tmp_path):
    """A layer as it is encoded for safetensors."""
    core = library("hqq.core.quantize")
    model = net()
    like = {key: value.clone() for key, value in model.state_dict().items()}
    config = core.BaseQuantizeConfig(nbits=4, group_size=64)
    state = {}
    for place in ("0", "2"):
        layer = core.HQQLinear(model[int(place)], config, compute_dtype=torch.float32, device="cpu")
        state |= {f"{place}.{key}": value for key, value in layer.state_dict().items()}
    assert "2 layers are HQQ" in said(tmp_path, state, like)["Q960"]
