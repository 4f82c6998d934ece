"""Optimizers that call their parameters by names, as FSDP's do, and what becomes of them when keys are renamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from ckptdoctor.rendering import fix_text
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import Outcome, repair
from ckptdoctor.repair.request import FixRequest


@pytest.fixture
def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    """A network after one step, so that its optimizer has a state."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    net(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    return net, optimizer


def named(optimizer: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The state of an optimizer whose names have a prefix."""
    groups = [{**each, "params": [prefix + name for name in each["params"]]} for each in optimizer["param_groups"]]
    return {"state": {prefix + name: each for name, each in optimizer["state"].items()}, "param_groups": groups}


def saved(path: Path, trained: tuple[nn.Module, torch.optim.Optimizer], prefix: str, **more: Any) -> str:
    """A training checkpoint of a wrapped model, with the optimizer's names under this prefix."""
    net, optimizer = trained
    state = named(get_optimizer_state_dict(net, optimizer), prefix)
    state["state"].update(more)
    torch.save({"model": {f"module.{key}": value for key, value in net.state_dict().items()}, "optimizer": state}, path)
    return str(path)


def stripped(path: str) -> Outcome:
    return repair(plan(FixRequest(path, strip_module=True)))


def names(path: str) -> tuple[list[str], list[str]]:
    """What the optimizer of a file calls its parameters: in its state, and in its groups."""
    found = torch.load(path)["optimizer"]
    return list(found["state"]), [name for group in found["param_groups"] for name in group["params"]]


def test_they_are_renamed_together(tmp_path, trained):
    """State and groups follow the keys, torch takes the result, and the way back gives the very bytes."""
    path = saved(tmp_path / "m.pt", trained, "module.")
    outcome = stripped(path)
    net, optimizer = trained
    wanted = list(get_optimizer_state_dict(net, optimizer)["state"])
    assert names(outcome.report.output) == (wanted, wanted)
    assert "6 optimizer states" in fix_text.outcome(outcome.report)
    fresh = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    other = torch.optim.Adam(fresh.parameters())
    found = torch.load(outcome.report.output)
    fresh.load_state_dict(found["model"])
    set_optimizer_state_dict(fresh, other, found["optimizer"])
    assert torch.equal(other.state[fresh[0].weight]["exp_avg"], optimizer.state[net[0].weight]["exp_avg"])
    back = repair(plan(FixRequest(outcome.report.output, add_prefix="module.", output=str(tmp_path / "back.pt"))))
    assert Path(back.report.output).read_bytes() == Path(path).read_bytes()


def test_names_that_are_right_already_stay(tmp_path, trained):
    """FSDP writes them without the names of wrappers."""
    outcome = stripped(saved(tmp_path / "m.pt", trained, ""))
    assert names(outcome.report.output)[0] == list(get_optimizer_state_dict(*trained)["state"])
    assert "optimizer" not in fix_text.outcome(outcome.report).split("wrote")[0]


def test_names_that_are_others_stay_and_are_told(tmp_path, trained):
    """Where one is no key of the weights, it may be anybody's: nothing is renamed, and the plan says so."""
    outcome = stripped(saved(tmp_path / "m.pt", trained, "module.", **{"module.loss.scale": {"step": 1}}))
    assert all(name.startswith("module.") for name in names(outcome.report.output)[0])
    told = "optimizer  →  keeps its names for parameters, since module.loss.scale is not a key of these weights"
    assert told in fix_text.outcome(outcome.report)


def test_numbers_are_no_names(tmp_path, trained):
    """torch's own state is numbered, and not touched."""
    net, optimizer = trained
    contents = {"model": {f"module.{key}": value for key, value in net.state_dict().items()}}
    torch.save({**contents, "optimizer": optimizer.state_dict()}, tmp_path / "m.pt")
    outcome = stripped(str(tmp_path / "m.pt"))
    assert names(outcome.report.output) == (list(range(6)), list(range(6)))
    assert "optimizer state" not in fix_text.outcome(outcome.report)
