"""N420 profiler-buffers."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.edits import Drop, Safety
from ckptdoctor.rules.examples import T
from tests.rules import nouns

COUNT = T((1,), "float64")


def _profiled(model: torch.nn.Module) -> torch.nn.Module:
    """What ``thop.profile`` does to a model before it counts."""
    for module in model.modules():
        module.register_buffer("total_ops", torch.zeros(1, dtype=torch.float64))
        module.register_buffer("total_params", torch.zeros(1, dtype=torch.float64))
    return model


def test_the_counters_of_a_profiled_model_are_found_and_quoted() -> None:
    """Every counter is dropped, safely, and torch's line is torch's."""
    saved = _profiled(torch.nn.Sequential(torch.nn.Linear(2, 3))).state_dict()
    [found] = nouns.findings("N420", nouns.described(saved))
    error = nouns.torch_error(torch.nn.Sequential(torch.nn.Linear(2, 3)), saved)
    assert found.torch_says[0].removesuffix(", …") in error
    assert found.message == "4 of 6 keys are counters of a profiler (total_ops, total_params)"
    assert found.fix is not None
    assert found.fix.safety is Safety.SAFE
    assert found.fix.edits == (Drop((("total_ops",), ("total_params",), ("0.total_ops",), ("0.total_params",))),)


@pytest.mark.parametrize("counter", [T((1,)), T((2,), "float64"), T((1,), "int64")])
def test_other_buffers_of_that_name_are_left_alone(counter: T) -> None:
    """Only one float64 element is a profiler's."""
    assert nouns.findings("N420", {"a.total_ops": counter, "a.weight": T((2, 2))}) == []


def test_a_single_counter_among_many_modules_is_the_models_own() -> None:
    """A profiler counts most modules, or it was none."""
    layers = {f"layer{number}.weight": T((2, 2)) for number in range(5)}
    assert nouns.findings("N420", {**layers, "layer0.total_ops": COUNT}) == []


def test_longer_names_are_other_names() -> None:
    """The last token must be exactly that name."""
    assert nouns.findings("N420", {"a.grand_total_ops": COUNT, "a.weight": T((2, 2))}) == []


def test_a_profiled_target_settles_it() -> None:
    """Where the target has counters too, nothing is wrong."""
    contents = {"a.total_ops": COUNT, "a.weight": T((2, 2))}
    assert nouns.findings("N420", contents, contents) == []
