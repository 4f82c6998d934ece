"""What is read of the states of optimizers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ckptdoctor.facts import optimizers
from ckptdoctor.facts.optimizers import SavedOptimizer, Slot
from ckptdoctor.facts.weight_sets import Candidate
from ckptdoctor.formats import open_checkpoint
from ckptdoctor.rules.examples import T
from ckptdoctor.rules.optimizer import optimizer_order_mismatch
from tests.rules import nouns

Make = Callable[..., torch.optim.Optimizer]
KEEPING_SHAPES: dict[str, tuple[Make, dict[str, Any]]] = {
    "AdamW": (torch.optim.AdamW, {}),
    "amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "RMSprop": (torch.optim.RMSprop, {}),
    "Adagrad": (torch.optim.Adagrad, {}),
    "Adadelta": (torch.optim.Adadelta, {}),
    "Adamax": (torch.optim.Adamax, {}),
    "NAdam": (torch.optim.NAdam, {}),
    "RAdam": (torch.optim.RAdam, {}),
    "Rprop": (torch.optim.Rprop, {}),
}


def _saved(optimizer: torch.optim.Optimizer, folder: Path) -> SavedOptimizer:
    torch.save({"opt": optimizer.state_dict()}, folder / "o.pt")
    [found] = optimizers.saved_optimizers(open_checkpoint(str(folder / "o.pt")))
    return found


def _stepped(make: Make, given: Any, net: nn.Module, **options: Any) -> torch.optim.Optimizer:
    optimizer = make(given, lr=0.01, **options)
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return optimizer


@pytest.mark.parametrize("name", KEEPING_SHAPES)
def test_moments_tell_the_shapes_of_parameters(name: str, tmp_path: Path) -> None:
    """Every optimizer of torch that keeps a value per element gives away the shape of each parameter."""
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    make, options = KEEPING_SHAPES[name]
    found = _saved(_stepped(make, net.parameters(), net, **options), tmp_path)
    assert found.path == ("opt",)
    assert [slot.shape for slot in found.slots] == [tuple(each.shape) for each in net.parameters()]


def test_states_without_shapes_tell_none(tmp_path: Path) -> None:
    """SGD without momentum keeps nothing."""
    net = nn.Linear(4, 3, bias=False)
    found = _saved(_stepped(torch.optim.SGD, net.parameters(), net), tmp_path)
    assert [slot.shape for slot in found.slots] == [None]


def test_groups_and_names_are_kept_apart(tmp_path: Path) -> None:
    """Groups come in their order, each parameter with the name that the optimizer was given."""
    net = nn.Linear(4, 3)
    groups = [{"params": [("bias", net.bias)]}, {"params": [("weight", net.weight)]}]
    found = _saved(_stepped(torch.optim.AdamW, groups, net), tmp_path)
    assert [[slot.shape for slot in group] for group in found.groups] == [[(3,)], [(3, 4)]]
    assert found.names == ("bias", "weight")


def test_frozen_parameters_have_no_state(tmp_path: Path) -> None:
    """A parameter without gradients is listed and has no state."""
    net = nn.Linear(4, 3)
    net.bias.requires_grad_(False)
    found = _saved(_stepped(torch.optim.AdamW, net.parameters(), net), tmp_path)
    assert [slot.has_state for slot in found.slots] == [True, False]


ODD = {
    "names for numbers": {"state": {}, "param_groups": [{"params": ["fc.weight"]}]},
    "no parameters": {"state": {}, "param_groups": []},
    "groups of text": {"state": {}, "param_groups": ["a", "b"]},
    "a state that is a list": {"state": [1], "param_groups": [{"params": [0]}]},
    "params that are a number": {"state": {}, "param_groups": [{"params": 3}]},
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_torch_optimizer_is_left_out(name: str) -> None:
    """FSDP's states by name, and files that only look like one, give nothing and no error."""
    assert optimizers.saved_optimizers(nouns.checkpoint({"optimizer": ODD[name]})) == ()


def test_too_few_names_are_no_names() -> None:
    """A list of names that is not as long as the parameters names none of them."""
    group = {"params": [0, 1], "param_names": ["a"]}
    [found] = optimizers.saved_optimizers(nouns.checkpoint({"state": {}, "param_groups": [group]}))
    assert found.names is None


def test_many_optimizers_are_no_trouble() -> None:
    """Of a list of thousands only the first are read."""
    one = {"state": {0: {"exp_avg": T((2,))}}, "param_groups": [{"params": [0]}]}
    assert len(optimizers.saved_optimizers(nouns.checkpoint([one] * 3000))) == 16


SHAPES = st.lists(st.sampled_from([(2,), (3,), (2, 3)]), max_size=8)


@given(SHAPES, st.data())
def test_what_leaves_some_out_is_in_order(shapes: list[tuple[int, ...]], data: st.DataObject) -> None:
    """Whatever is frozen, and whichever shapes are unknown: the rest is in order and among the parameters."""
    wanted = [Candidate(str(number), shape) for number, shape in enumerate(shapes)]
    kept = [shape for shape in shapes if data.draw(st.booleans())]
    slots = [Slot(None, True, shape if data.draw(st.booleans()) else None) for shape in kept]
    assert optimizers.in_order(slots, wanted)
    assert optimizer_order_mismatch.among(slots, wanted)


def test_another_order_is_not_in_order() -> None:
    """Turned round, the shapes are all there and out of order; with one too many they are not even there."""
    wanted = [Candidate("a", (2,)), Candidate("b", (3,))]
    slots = [Slot(None, True, (3,)), Slot(None, True, (2,))]
    assert not optimizers.in_order(slots, wanted)
    assert optimizer_order_mismatch.among(slots, wanted)
    assert not optimizer_order_mismatch.among([*slots, Slot(None, True, (2,))], wanted)
    assert optimizers.clashes(slots, wanted) == [(0, (3,), (2,)), (1, (2,), (3,))]


def test_shapes_name_parameters_only_where_they_are_unique() -> None:
    """One key per shape is an order; two of a shape, or an unknown one, are a guess."""
    wanted = [Candidate("a", (2,)), Candidate("b", (3,)), Candidate("c", (4,)), Candidate("d", (4,))]
    assert optimizer_order_mismatch.by_shape([Slot(None, True, (3,)), Slot(None, True, (2,))], wanted) == ["b", "a"]
    assert optimizer_order_mismatch.by_shape([Slot(None, True, (4,))], wanted) is None
    assert optimizer_order_mismatch.by_shape([Slot(None, True, None)], wanted) is None
