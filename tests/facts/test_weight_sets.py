"""Several sets of weights: one network more than once, or several networks."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ckptdoctor.facts.weight_sets import networks, one_copy
from ckptdoctor.formats import open_checkpoint
from ckptdoctor.rules.examples import T
from tests.rules import nouns

NET = {"conv.weight": T((4, 3, 1, 1)), "bn.weight": T((4,)), "bn.running_mean": T((4,))}
OTHER = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}


def _paths(contents: object) -> list[list[str]]:
    return [["/".join(map(str, each.path)) for each in one.sets] for one in networks(nouns.checkpoint(contents))]


def test_an_averaged_model_is_the_same_network(tmp_path: Path) -> None:
    """torch's AveragedModel adds a prefix and a counter, and is still that network."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    torch.save({"model": model.state_dict(), "ema": AveragedModel(model).state_dict()}, tmp_path / "x.pt")
    [network] = networks(open_checkpoint(str(tmp_path / "x.pt")))
    assert [each.path for each in network.sets] == [("model",), ("ema",)]
    assert not one_copy(network.sets)


def test_an_average_without_buffers_is_the_same_network() -> None:
    """An average of parameters only lacks nothing but buffers."""
    average = {key: tensor for key, tensor in NET.items() if "running" not in key}
    assert _paths({"model": NET, "shadow": average}) == [["model", "shadow"]]


def test_a_part_is_not_the_whole() -> None:
    """A state dict that lacks parameters of another is another network, and so is one of other shapes."""
    assert _paths({"a": NET, "b": {"conv.weight": T((4, 3, 1, 1))}}) == [["a"], ["b"]]
    assert _paths({"a": OTHER, "b": {"fc.weight": T((3, 4)), "fc.bias": T((3,))}}) == [["a"], ["b"]]


def test_statistics_are_no_network() -> None:
    """A mean and a deviation beside the weights are not mistaken for a model; a single layer is one."""
    assert _paths({"model": NET, "normalizer": {"mean": T((3,)), "std": T((3,))}}) == [["model"]]
    assert _paths({"model": NET, "head": {"weight": T((2, 4)), "bias": T((2,))}}) == [["model"], ["head"]]


def test_a_copy_that_was_none_is_told(tmp_path: Path) -> None:
    """``best = model.state_dict()`` without a copy saves the same tensors twice."""
    state = nn.Linear(2, 3).state_dict()
    torch.save({"last": state, "best": dict(state)}, tmp_path / "x.pt")
    [network] = networks(open_checkpoint(str(tmp_path / "x.pt")))
    assert one_copy(network.sets)


def test_thousands_of_sets_are_no_trouble() -> None:
    """A list of very many state dicts is looked at in part."""
    assert len(networks(nouns.checkpoint([{f"a{n}.weight": T((2,))} for n in range(3000)]))) <= 64
