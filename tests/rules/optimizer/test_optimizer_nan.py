"""O756 optimizer-nan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from tests.rules.examined import found

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any], str]] = {
    "Adam": (torch.optim.Adam, {"amsgrad": True}, "max_exp_avg_sq"),
    "AdamW": (torch.optim.AdamW, {}, "exp_avg_sq"),
    "RMSprop": (torch.optim.RMSprop, {}, "square_avg"),
    "Adagrad": (torch.optim.Adagrad, {}, "sum"),
    "Adafactor": (torch.optim.Adafactor, {}, "variance"),
    "SGD": (torch.optim.SGD, {"momentum": 0.9}, "momentum_buffer"),
}


def _trained(name: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    make, options, _ = OPTIMIZERS[name]
    optimizer = make([{"params": net[0].parameters()}, {"params": net[1].parameters()}], lr=0.01, **options)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(8, 4)).pow(2).sum().backward()
        optimizer.step()
    return net, optimizer


def _saved(net: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> Path:
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, path)
    return path


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_optimizers_keep_is_as_it_should_be(name: str, tmp_path: Path) -> None:
    """Nothing is said of states that torch's own optimizers made."""
    assert found(_saved(*_trained(name), tmp_path / "x.pt"), "O756", deep=True) == []


@pytest.mark.parametrize("value", [float("nan"), -1.0])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_bad_number_is_found_and_its_state_left_out(name: str, value: float, tmp_path: Path) -> None:
    """The bias of the last layer has one; after the named repair training goes on, and the other states are there."""
    net, optimizer = _trained(name)
    part = OPTIMIZERS[name][2]
    optimizer.state[net[1].bias][part].view(-1)[1] = value
    path = _saved(net, optimizer, tmp_path / "x.pt")
    if part == "momentum_buffer" and value < 0:
        assert found(path, "O756", deep=True) == []
        return
    [finding] = found(path, "O756", deep=True)
    assert finding.keys == (("optimizer", "state", 3, part),)
    assert finding.fix is not None
    assert finding.fix.option == "--drop optimizer/state/3"
    saved = torch.load(repair(plan(FixRequest(str(path), drop=("optimizer/state/3",)))).plan.output)
    assert list(saved["optimizer"]["state"]) == [0, 1, 2]
    assert found(tmp_path / "x.fixed.pt", "O756", deep=True) == []
    again, resumed = _trained(name)
    again.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    resumed.zero_grad()
    again(torch.randn(8, 4)).pow(2).sum().backward()
    resumed.step()
    assert all(each.isfinite().all() for each in again.parameters())


def test_weights_are_not_its_matter(tmp_path: Path) -> None:
    """NaN in weights is V651's, and NaN in states is not V651's."""
    net, optimizer = _trained("Adam")
    with torch.no_grad():
        net[0].weight[0, 0] = float("nan")
    path = _saved(net, optimizer, tmp_path / "x.pt")
    assert found(path, "O756", deep=True) == []
    assert len(found(path, "V651", deep=True)) == 1
