"""``--slim``: what only resuming needs goes, and nothing else."""

from __future__ import annotations

import random

import pytest
import torch

from ckptdoctor.errors import RefusedError
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest


def slimmed(contents, folder):
    """What ``fix --slim`` leaves of these contents."""
    torch.save(contents, folder / "a.pt")
    repair(plan(FixRequest(str(folder / "a.pt"), output=str(folder / "b.pt"), slim=True, force=True)))
    return torch.load(folder / "b.pt", weights_only=False)


@pytest.fixture
def trained():
    """A network, and an optimizer and a scheduler of two groups that have stepped."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
    groups = [{"params": [parameter]} for parameter in net.parameters()]
    optimizer = torch.optim.AdamW(groups)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    net(torch.randn(4, 4)).sum().backward()
    optimizer.step()
    scheduler.step()
    return net, optimizer, scheduler


def test_a_training_checkpoint_keeps_weights_and_settings(tmp_path, trained):
    """Optimizer, scheduler, scaler and generators go; weights, averages, counters and settings stay."""
    net, optimizer, scheduler = trained
    average = torch.optim.swa_utils.AveragedModel(net)
    contents = {
        "epoch": 3,
        "args": {"lr": 0.1, "optimizer": "adamw"},
        "model": net.state_dict(),
        "model_ema": average.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "scaler": torch.amp.GradScaler("cpu").state_dict(),
        "rng_state": {"torch": torch.get_rng_state(), "python": random.getstate()},
    }
    left = slimmed(contents, tmp_path)
    assert list(left) == ["epoch", "args", "model", "model_ema"]
    assert left["args"] == contents["args"]
    for name in ("model", "model_ema"):
        assert list(left[name]) == list(contents[name])
        assert all(torch.equal(left[name][key], value) for key, value in contents[name].items())


def test_lists_go_whole(tmp_path, trained):
    """Lightning keeps optimizers and schedulers in lists; none is left empty."""
    net, optimizer, scheduler = trained
    contents = {
        "pytorch-lightning_version": "2.4.0",
        "state_dict": net.state_dict(),
        "optimizer_states": [optimizer.state_dict(), optimizer.state_dict()],
        "lr_schedulers": [scheduler.state_dict()],
        "hyper_parameters": {"scheduler": "cosine"},
    }
    assert list(slimmed(contents, tmp_path)) == ["pytorch-lightning_version", "state_dict", "hyper_parameters"]


def test_what_lies_beside_other_things_goes_alone(tmp_path, trained):
    """A dict that holds an optimizer and something else keeps the latter."""
    net, optimizer, _ = trained
    contents = {"net": net.state_dict(), "training": {"optim": optimizer.state_dict(), "epoch": 2}}
    assert slimmed(contents, tmp_path)["training"] == {"epoch": 2}


def test_weights_alone_stay_as_they_are(tmp_path, trained):
    """There is nothing to leave out, and nothing is written."""
    torch.save(trained[0].state_dict(), tmp_path / "a.pt")
    assert plan(FixRequest(str(tmp_path / "a.pt"), slim=True)).recipe is None


def test_a_model_with_a_name_of_an_optimizer_stays(tmp_path, trained):
    """Weights are kept whatever the dict around them is called."""
    contents = {"opt": {"model": trained[0].state_dict()}, "optimizer": trained[1].state_dict()}
    assert list(slimmed(contents, tmp_path)) == ["opt"]


def test_an_optimizers_file_is_refused(tmp_path, trained):
    """Nothing would be left of it."""
    torch.save(trained[1].state_dict(), tmp_path / "a.pt")
    with pytest.raises(RefusedError, match="no"):
        plan(FixRequest(str(tmp_path / "a.pt"), slim=True))
