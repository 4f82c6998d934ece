"""What a checkpoint is for, what in it can be parameters, and sets of weights."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.facts import weight_sets
from ckptdoctor.facts.weight_sets import Candidate, networks
from ckptdoctor.formats import open_checkpoint
from ckptdoctor.rules.examples import T
from tests.rules import nouns

CLASSIFIER = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}


def test_weights_are_found_through_dicts_and_lists() -> None:
    """Every set of weights that plain subscripts reach is a candidate, in file order."""
    found = weight_sets.weight_sets(nouns.checkpoint({"a": {"b": [1, CLASSIFIER]}, "ema": CLASSIFIER, "optimizer": {}}))
    assert [each.path for each in found] == [("a", "b", 1), ("ema",)]


def _candidates(contents: object) -> list[Candidate]:
    model = weight_sets.only_model(nouns.checkpoint(contents))
    assert model is not None
    return weight_sets.candidates(model)


def test_the_parameters_of_a_real_model_are_found() -> None:
    """Convolutions, norms and heads: candidates are exactly what ``parameters()`` gives, in its order."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4)))
    found = _candidates(nouns.described(model.state_dict()))
    assert [(each.key, each.shape) for each in found] == [(k, tuple(p.shape)) for k, p in model.named_parameters()]


def test_names_of_wrappers_do_not_count() -> None:
    """Keys are those of the bare model, as optimizers note them."""
    model = nn.DataParallel(nn.Linear(2, 3))
    assert [each.key for each in _candidates(nouns.described(model.state_dict()))] == ["weight", "bias"]


def test_integers_and_statistics_are_never_trained() -> None:
    """What has no gradient, and what norm layers count, is no parameter; complex numbers may be one."""
    assert weight_sets.may_train("fc.weight", BY_NAME["bfloat16"])
    assert weight_sets.may_train("fc.weight", BY_NAME["complex64"])
    assert weight_sets.may_train("fc.weight", None)
    assert not weight_sets.may_train("fc.weight", BY_NAME["int8"])
    assert not weight_sets.may_train("bn.running_mean", BY_NAME["float32"])


def test_a_file_is_about_its_only_weights() -> None:
    """An average beside them does not matter; two networks leave the question open."""
    one, other = {"fc.weight": T((2, 4))}, {"conv.weight": T((4, 3))}
    for contents, path in (({"model": one, "ema": one}, ("model",)), ({"ema": one}, ("ema",)), (one, ())):
        found = weight_sets.only_model(nouns.checkpoint(contents))
        assert found is not None
        assert found.path == path
    assert weight_sets.only_model(nouns.checkpoint({"g": one, "d": other})) is None
    assert weight_sets.only_model(nouns.checkpoint({"epoch": 1})) is None


def test_the_order_of_safetensors_tells_nothing() -> None:
    """Keys sorted by name, or by dtype and then by name, are not taken for the order of a model."""
    assert not weight_sets.ordered([Candidate("a.bias", (2,), "float32"), Candidate("a.weight", (2, 2), "float32")])
    assert not weight_sets.ordered([Candidate("b", (2,), "float32"), Candidate("a", (2,), "float16")])
    assert weight_sets.ordered([Candidate("a.weight", (2, 2), "float32"), Candidate("a.bias", (2,), "float32")])
    assert not weight_sets.ordered([])


def test_tied_weights_count_once(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Optimizers hold a tied tensor once, and so do the candidates of its state dict."""
    from ckptdoctor.formats import open_checkpoint

    model = nn.ModuleDict({"embed": nn.Embedding(5, 3), "out": nn.Linear(3, 5)})
    model["out"].weight = model["embed"].weight
    torch.save(model.state_dict(), tmp_path / "tied.pt")
    [state_dict] = open_checkpoint(str(tmp_path / "tied.pt")).state_dicts
    assert [each.key for each in weight_sets.candidates(state_dict)] == [name for name, _ in model.named_parameters()]


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


def test_thousands_of_sets_are_no_trouble() -> None:
    """A list of very many state dicts is looked at in part."""
    assert len(networks(nouns.checkpoint([{f"a{n}.weight": T((2,))} for n in range(3000)]))) <= 64
