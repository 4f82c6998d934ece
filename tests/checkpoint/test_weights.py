"""Which state dicts are weights."""

from __future__ import annotations

from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.rules.examples import T
from tests.rules import nouns

NET = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}


def _paths(contents: object) -> list[object]:
    return [each.path for each in weights_among(nouns.checkpoint(contents).state_dicts)]


def test_models_and_averages_are_weights() -> None:
    """Optimizers, schedulers and generator states are not."""
    contents = {
        "model": NET,
        "ema": NET,
        "optimizer": {"state": {0: {"exp_avg": T((2, 4))}}, "param_groups": []},
        "rng": {"cpu": T((5056,), "uint8")},
    }
    assert _paths(contents) == [("model",), ("ema",)]


def test_a_tensor_beside_the_weights_makes_no_model_of_the_file() -> None:
    """The best accuracy as a tensor does not make the whole checkpoint a state dict."""
    assert _paths({"best": T(()), "model": NET}) == [("model",)]


def test_bare_weights_with_something_small_inside_stay_weights() -> None:
    """The larger dict is the model; numbers alone are no weights."""
    assert _paths({**NET, "meters": {"loss": T(())}}) == [()]
