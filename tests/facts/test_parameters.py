"""Which tensors of a state dict can be parameters."""

from __future__ import annotations

import torch
from torch import nn

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.facts import parameters
from ckptdoctor.facts.parameters import Candidate
from ckptdoctor.rules.examples import T
from tests.rules import nouns


def _candidates(contents: object) -> list[Candidate]:
    model = parameters.only_model(nouns.checkpoint(contents))
    assert model is not None
    return parameters.candidates(model)


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
    assert parameters.may_train("fc.weight", BY_NAME["bfloat16"])
    assert parameters.may_train("fc.weight", BY_NAME["complex64"])
    assert parameters.may_train("fc.weight", None)
    assert not parameters.may_train("fc.weight", BY_NAME["int8"])
    assert not parameters.may_train("bn.running_mean", BY_NAME["float32"])


def test_optimizers_and_generators_make_no_room() -> None:
    """Only tensors outside the states of optimizers, schedulers and generators can be parameters, wherever they lie."""
    optimizer = {"state": {0: {"exp_avg": T((2, 4))}}, "param_groups": [{"params": [0]}]}
    contents = {"model": {"fc.weight": T((2, 4))}, "loss": {"w": T((2,))}, "optimizer": optimizer, "list": [T((2,))]}
    assert parameters.trainable(nouns.checkpoint({**contents, "rng": T((5056,), "uint8")})) == 3


def test_a_file_is_about_its_only_weights() -> None:
    """An average beside them does not matter; two networks leave the question open."""
    one, other = {"fc.weight": T((2, 4))}, {"conv.weight": T((4, 3))}
    for contents, path in (({"model": one, "ema": one}, ("model",)), ({"ema": one}, ("ema",)), (one, ())):
        found = parameters.only_model(nouns.checkpoint(contents))
        assert found is not None
        assert found.path == path
    assert parameters.only_model(nouns.checkpoint({"g": one, "d": other})) is None
    assert parameters.only_model(nouns.checkpoint({"epoch": 1})) is None


def test_the_order_of_safetensors_tells_nothing() -> None:
    """Keys sorted by name, or by dtype and then by name, are not taken for the order of a model."""
    assert not parameters.ordered([Candidate("a.bias", (2,), "float32"), Candidate("a.weight", (2, 2), "float32")])
    assert not parameters.ordered([Candidate("b", (2,), "float32"), Candidate("a", (2,), "float16")])
    assert parameters.ordered([Candidate("a.weight", (2, 2), "float32"), Candidate("a.bias", (2,), "float32")])
    assert not parameters.ordered([])


def test_tied_weights_count_once(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Optimizers hold a tied tensor once, and so do the candidates of its state dict."""
    from ckptdoctor.formats import open_checkpoint

    model = nn.ModuleDict({"embed": nn.Embedding(5, 3), "out": nn.Linear(3, 5)})
    model["out"].weight = model["embed"].weight
    torch.save(model.state_dict(), tmp_path / "tied.pt")
    [state_dict] = open_checkpoint(str(tmp_path / "tied.pt")).state_dicts
    assert [each.key for each in parameters.candidates(state_dict)] == [name for name, _ in model.named_parameters()]
