"""References given from Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ckptdoctor.errors import UsageError
from ckptdoctor.target import Expected, Reference
from ckptdoctor.target.mapping import as_reference


def shown(reference):
    """Key → (shape, dtype)."""
    return {key: (each.shape, each.dtype and each.dtype.name) for key, each in reference.tensors.items()}


def test_a_module_expects_its_state_dict():
    """Every key of the state dict, wherever the module lies; the class names it."""
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(torch.bfloat16)
    found = as_reference(net)
    assert found.source == "Sequential"
    assert shown(found) == {
        key: (tuple(value.shape), str(value.dtype).removeprefix("torch.")) for key, value in net.state_dict().items()
    }


def test_extra_state_is_no_tensor():
    """What get_extra_state gives besides tensors is not compared."""

    class Net(nn.Linear):
        def get_extra_state(self):
            return {"scale": 1}

    assert set(as_reference(Net(2, 3)).tensors) == {"weight", "bias"}
    assert set(as_reference(Net(2, 3).state_dict()).tensors) == {"weight", "bias"}


def test_mappings_of_many_kinds():
    """Tensors, arrays, shapes and Expected may be mixed."""
    given = {
        "tensor": torch.zeros(2, 3, dtype=torch.float16),
        "array": np.zeros((4,), np.int64),
        "size": torch.Size([5]),
        "tuple": (1, 2),
        "list": [],
        "expected": Expected((7,)),
        "meta": torch.empty(10**9, 10**6, device="meta"),
    }
    assert shown(as_reference(given)) == {
        "tensor": ((2, 3), "float16"),
        "array": ((4,), "int64"),
        "size": ((5,), None),
        "tuple": ((1, 2), None),
        "list": ((), None),
        "expected": ((7,), None),
        "meta": ((10**9, 10**6), "float32"),
    }


def test_a_reference_is_itself():
    """Nothing is done to a Reference."""
    reference = Reference("x", {"a": Expected((1,))})
    assert as_reference(reference) is reference


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"state_dict": {"a": torch.zeros(1)}}, 'under "state_dict", but dict: give the state dict inside'),
        ({"a": 3}, 'under "a", but int'),
        ({"a": (1, -1)}, 'under "a", but tuple'),
        ({1: torch.zeros(1)}, "has the key 1: the keys of a state dict are texts"),
        ("model.pt", "not str; the path of a file goes to like="),
        (3, "not int"),
        (nn.Linear, "not type"),
        (nn.ReLU(), "ReLU has neither parameters nor buffers"),
        (nn.LazyLinear(3), "LazyLinear has no shape for weight yet"),
    ],
)
def test_anything_else_is_a_usage_error(given, why):
    """The sentence says what is wrong with it."""
    with pytest.raises(UsageError, match=why):
        as_reference(given)


def test_a_module_tells_what_is_tied():
    """One parameter or buffer under several names; equal values alone are not enough."""
    net = nn.ModuleDict({"embed": nn.Embedding(4, 2), "head": nn.Linear(2, 4), "other": nn.Linear(2, 4)})
    net["head"].weight = net["embed"].weight
    with torch.no_grad():
        net["other"].weight.copy_(net["head"].weight)
    found = as_reference(net)
    assert found.ties == (("embed.weight", "head.weight"),)
    assert not found.retied


def test_a_module_that_is_held_twice_is_tied():
    """All of its names, though it is a single module."""
    shared = nn.Linear(2, 2)
    found = as_reference(nn.Sequential(shared, nn.ReLU(), shared))
    assert found.ties == (("0.weight", "2.weight"), ("0.bias", "2.bias"))
