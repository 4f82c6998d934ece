"""N411 swa-ema-prefix."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.edits import Drop, Rename, Safety
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import T
from tests.rules import nouns

W = T((2, 2))


def test_an_averaged_model_of_torch_is_found_and_quoted() -> None:
    """A real AveragedModel gives one finding, with torch's own words, and N401 keeps out of it."""
    model = torch.nn.Linear(2, 3)
    saved = torch.optim.swa_utils.AveragedModel(model).state_dict()
    [found] = nouns.findings("N411", nouns.described(saved))
    error = nouns.torch_error(model, saved)
    assert all(line in error for line in found.torch_says)
    assert nouns.findings("N401", nouns.described(saved)) == []


def test_the_counter_goes_and_the_prefix_with_it() -> None:
    """One safe repair drops ``n_averaged`` and strips ``module.``."""
    [found] = nouns.findings("N411", {"swa": {"n_averaged": T((), "int64"), "module.weight": W}})
    assert found.severity is Severity.ERROR
    assert found.fix is not None
    assert found.fix.safety is Safety.SAFE
    assert found.fix.edits == (
        Drop((("swa", "n_averaged"),)),
        Rename(("swa",), (("module.weight", "weight"),)),
    )


@pytest.mark.parametrize("prefix", ["ema_model", "model_ema", "averaged_model", "ema", "shadow"])
def test_other_classes_are_a_warning_with_an_unsafe_repair(prefix: str) -> None:
    """A name is no proof: the class that wrote it can load it, and stripping it is a guess."""
    [found] = nouns.findings("N411", {f"{prefix}.weight": W, f"{prefix}.b": W, "step": T((), "int64")})
    assert found.severity is Severity.WARNING
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE


def test_averaged_and_trained_weights_are_both_named() -> None:
    """Where both are there nobody chooses for the user."""
    [found] = nouns.findings("N411", {"ema_model.weight": W, "online_model.weight": W})
    assert found.fix is None
    assert [command.split()[4] for command in found.commands] == ["'ema_model.*'", "'online_model.*'"]


@pytest.mark.parametrize(
    "contents",
    [
        {"ema.weight": W, "fc.weight": W},
        {"ema.weight": W, "shadow.weight": W},
        {"ema.weight": W, "big": W},
        {"module.weight": W},
        {"online_model.weight": W},
    ],
)
def test_anything_else_is_left_alone(contents: dict[str, object]) -> None:
    """A part called ema, two averages, or weights outside of it are a model of their own."""
    assert nouns.findings("N411", contents) == []


def test_a_reference_that_counts_too_settles_it() -> None:
    """Where the target is an AveragedModel as well, nothing is wrong."""
    contents = {"n_averaged": T((), "int64"), "module.weight": W}
    assert nouns.findings("N411", contents, contents) == []
    assert nouns.findings("N411", contents, {"weight": W})
