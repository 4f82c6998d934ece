from __future__ import annotations

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

from ckptdoctor.checkpoint import Role
from tests.formats.torch.read.support import contents_of


def roles(value):
    return {each.path: each.role for each in contents_of(value).state_dicts}


def trained():
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3)


def test_a_training_checkpoint_is_taken_apart():
    """Model, optimizer, scheduler and generator state are told by their shapes."""
    net, optimizer, scheduler = trained()
    value = {
        "state_dict": net.state_dict(),
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [scheduler.state_dict()],
        "rng_state": torch.get_rng_state(),
        "epoch": 3,
    }
    assert roles(value) == {
        (): Role.RNG,
        ("state_dict",): Role.MODEL,
        ("optimizer_states", 0): Role.OPTIMIZER,
        ("lr_schedulers", 0): Role.SCHEDULER,
    }


def test_an_optimizer_owns_every_tensor_below_it():
    """The nested states of an optimizer are its tensors, and no state dicts of their own."""
    _, optimizer, _ = trained()
    (found,) = contents_of(optimizer.state_dict()).state_dicts
    assert (found.path, found.role, len(found.tensors)) == ((), Role.OPTIMIZER, 6)
    assert found.others == ("state", "param_groups")


def test_an_optimizer_without_state_is_still_one():
    """Plain SGD has no tensors, but groups."""
    assert roles({"o": torch.optim.SGD([torch.ones(1, requires_grad=True)]).state_dict()}) == {("o",): Role.OPTIMIZER}


@pytest.mark.parametrize("name", ["ema", "model_ema", "ema_state_dict", "state_dict_ema", "shadow", "swa_model", "EMA"])
def test_averaged_weights_are_told_by_their_path(name):
    """A word for averaging in the path makes a state dict an EMA."""
    assert roles({"model": {"w": torch.ones(1)}, name: {"w": torch.ones(1)}}) == {
        ("model",): Role.MODEL,
        (name,): Role.EMA,
    }


def test_averaged_weights_are_told_by_their_keys():
    """AveragedModel, and keys that all begin with ema, are EMAs; words that only contain the letters are not."""
    assert roles(AveragedModel(torch.nn.Linear(1, 1)).state_dict()) == {(): Role.EMA}
    assert roles({"ema.w": torch.ones(1), "ema.b": torch.ones(1)}) == {(): Role.EMA}
    assert roles({"schema": {"demand.w": torch.ones(1)}}) == {("schema",): Role.MODEL}


def test_nested_dicts_count_where_they_hold_tensors():
    """Each dict with at least one tensor under a text key is a state dict; its other keys are listed."""
    found = contents_of(
        {"net": {"w": torch.ones(1), "arch": "x", "sub": {"v": torch.ones(1)}}, "n": {3: torch.ones(1)}}
    )
    assert [(each.path, each.keys, each.others) for each in found.state_dicts] == [
        (("net",), ("w",), ("arch", "sub")),
        (("net", "sub"), ("v",), ()),
    ]


def test_state_dicts_inside_objects_count_unless_the_object_is_a_module():
    """A trainer object may hold state dicts; a module's own parameters are none."""
    net = torch.nn.Linear(1, 1)
    net.extra = {"w": torch.ones(1)}
    assert roles([net]) == {}
