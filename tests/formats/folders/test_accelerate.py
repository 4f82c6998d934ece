"""Folders that ``accelerate.Accelerator.save_state`` writes."""

from __future__ import annotations

import warnings

import pytest
import torch

import ckptdoctor
from ckptdoctor.checkpoint import Role
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.examine.file import check
from ckptdoctor.formats import open_checkpoint
from tests.libraries import accelerate, real

pytestmark = real


def saved(folder, safe=True, models=1):
    """What a short training leaves, and its models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accelerator = accelerate.Accelerator(cpu=True)
        nets = [accelerator.prepare(torch.nn.Linear(3, 2)) for _ in range(models)]
        optimizer = torch.optim.Adam(nets[0].parameters())
        optimizer, _ = accelerator.prepare(optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1))
        nets[0](torch.ones(1, 3)).sum().backward()
        optimizer.step()
        accelerator.save_state(str(folder), safe_serialization=safe)
    return nets


@pytest.mark.parametrize("safe", [True, False])
def test_a_real_state(safe, tmp_path):
    """All of it is one checkpoint: the model, the optimizer, and what else lies there."""
    (net,) = saved(tmp_path, safe)
    torch.save({"epoch": 1}, tmp_path / "sampler.bin")
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.format == "Accelerate checkpoint" and not checkpoint.notes
    branches = [part for part, _ in checkpoint.tree.entries]
    assert branches == ["model", "optimizer", "scheduler", "sampler", "random_states"]
    roles = {each.path[0]: each.role for each in checkpoint.state_dicts}
    assert roles["model"] is Role.MODEL and roles["optimizer"] is Role.OPTIMIZER
    found = ckptdoctor.load(tmp_path)
    assert all(torch.equal(found["model"][key], value) for key, value in net.state_dict().items())
    check(str(tmp_path))


def test_two_models(tmp_path):
    """The second has a branch of its own."""
    saved(tmp_path, models=2)
    assert {"model", "model_1"} <= {part for part, _ in open_checkpoint(tmp_path).tree.entries}


def test_generators_alone(tmp_path):
    """They make no checkpoint."""
    torch.save({"step": 1}, tmp_path / "random_states_0.pkl")
    with pytest.raises(CkptDoctorError):
        open_checkpoint(tmp_path)


def test_a_damaged_part(tmp_path):
    """The rest is shown, and what cannot be read is said."""
    saved(tmp_path)
    (tmp_path / "optimizer.bin").write_bytes(b"PK\x03\x04")
    checkpoint = open_checkpoint(tmp_path)
    assert len(checkpoint.tensors) >= 2 and any("optimizer.bin" in note.message for note in checkpoint.notes)
