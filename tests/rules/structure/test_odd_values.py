"""W305 bare-list-or-tuple, W306 numpy-leaves, W307 non-tensor-in-state-dict and W309 non-string-keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch import nn

from ckptdoctor.edits import Drop, Safety
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import T
from tests.rules import examined, nouns

NET = {"fc.weight": T((2, 4)), "fc.bias": T((2,)), "out.weight": T((2, 2))}


def _refusal(model: nn.Module, state_dict: object) -> str:
    with pytest.raises((RuntimeError, TypeError, AttributeError)) as caught:
        model.load_state_dict(state_dict)  # type: ignore[arg-type]
    return f"{caught.type.__name__}: {caught.value}"


def _safetensors(state_dict: object) -> str:
    with pytest.raises((ValueError, TypeError)) as caught:
        save(state_dict)
    return str(caught.value)


# --- W305 ------------------------------------------------------------------------------------------------------------


def test_a_list_is_quoted_and_no_fault_by_itself() -> None:
    """What the finding quotes is what torch says to a list; alone it may be any data."""
    [found] = nouns.findings("W305", [T((2, 4)), T((2,))])
    assert found.torch_says[0] in _refusal(nn.Linear(4, 2), [torch.ones(2, 4), torch.ones(2)])
    assert found.severity is Severity.INFO


MODEL = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
BUFFERS_TOO = [each.detach() for each in MODEL.state_dict().values()]
PARAMETERS = [each.detach() for each in MODEL.parameters()]


@pytest.mark.parametrize(("tensors", "words"), [(BUFFERS_TOO, "keys"), (PARAMETERS, "parameters")])
def test_the_advice_for_a_list_loads_it(tensors: list[torch.Tensor], words: str) -> None:
    """Where the shapes agree one after another, the advice is a line of Python that makes a state dict."""
    contents = [T(tuple(each.shape), str(each.dtype)[6:]) for each in tensors]
    [found] = nouns.findings("W305", contents, nouns.described(MODEL.state_dict()))
    assert found.severity is Severity.ERROR
    about, _, line = found.advice.partition(": ")
    assert about == f"In order, the shapes are those of the {words} of like.pt"
    expression = line.removesuffix(".").replace("torch.load(path)", "tensors")
    made = eval(expression, {"model": MODEL, "tensors": tensors})  # our own sentence
    left = MODEL.load_state_dict(made, strict=words == "keys")
    assert not left.unexpected_keys


def test_a_list_of_other_shapes_stays_a_list() -> None:
    """Where the shapes do not agree in order, nothing is guessed."""
    [found] = nouns.findings("W305", [T((2,)), T((2, 4))], {"a.weight": T((2, 4)), "a.bias": T((2,))})
    assert "nothing shows which tensor is which" in found.advice


@pytest.mark.parametrize("contents", [[], [1, NET], [T((2,))], [T((2,)), 3], {"x": [T((2,)), T((2,))]}, NET])
def test_other_files_are_no_bare_list(contents: object) -> None:
    """Empty lists, mixed lists and lists inside a dict are left alone."""
    assert nouns.findings("W305", contents) == []


# --- W306 ------------------------------------------------------------------------------------------------------------


def test_arrays_are_quoted(tmp_path: Path) -> None:
    """What the finding quotes is what torch says to arrays once the file is loaded; the advice makes it load."""
    model = nn.Linear(2, 3)
    weights = {f"fc.{key}": tensor.numpy() for key, tensor in model.state_dict().items()}
    torch.save({"model": weights}, tmp_path / "x.pt")
    [found] = examined.found(tmp_path / "x.pt", "W306")
    assert found.message == "both values of model are NumPy arrays, not tensors"
    assert found.torch_says[0] in _refusal(nn.ModuleDict({"fc": model}), weights)
    nn.ModuleDict({"fc": model}).load_state_dict({key: torch.as_tensor(value) for key, value in weights.items()})


def test_one_array_is_named(tmp_path: Path) -> None:
    """A single array among tensors is named, and is no business of W307."""
    torch.save({"fc.weight": torch.ones(2), "fc.scale": np.ones(2)}, tmp_path / "x.pt")
    [found] = examined.found(tmp_path / "x.pt", "W306")
    assert found.message == "fc.scale is a NumPy array, not a tensor"
    assert examined.found(tmp_path / "x.pt", "W307") == []


# --- W307 ------------------------------------------------------------------------------------------------------------


def test_a_number_is_quoted() -> None:
    """What the finding quotes is what torch and safetensors say."""
    model = nn.Linear(4, 2)
    [found] = nouns.findings("W307", {"a.b": T(()), "weight": T((2, 4)), "bias": T((2,)), "epoch": 3})
    assert found.message == "1 value is not a tensor: epoch (int)"
    assert found.severity is Severity.INFO
    unexpected, safetensors = found.torch_says
    assert unexpected in _refusal(model, {**model.state_dict(), "epoch": 3})
    assert safetensors == _safetensors({"epoch": 3})


def test_extra_states_load_and_are_only_known() -> None:
    """The module that saved an extra state takes it back: only safetensors is quoted, and no reference objects."""
    contents = {"model": {**NET, "fc._extra_state": {"scale": 2}}}
    [found] = nouns.findings("W307", contents)
    assert found.message == "1 value of model is not a tensor: fc._extra_state (dict)"
    assert found.torch_says == (_safetensors({"fc._extra_state": {"scale": 2}}),)
    assert nouns.findings("W307", contents, NET) == []


def test_what_a_model_does_not_know_can_be_dropped() -> None:
    """With a reference a stray value is a warning, and can be left out."""
    [found] = nouns.findings("W307", {"model": {**NET, "epoch": 3, "lr": 0.1}}, NET)
    assert found.message == "2 values of model are not tensors: epoch (int) and lr (float), and unknown to like.pt"
    assert found.severity is Severity.WARNING
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE
    assert found.fix.edits == (Drop((("model", "epoch"), ("model", "lr"))),)


def test_a_number_in_the_place_of_a_tensor_is_an_error() -> None:
    """Where the target has a tensor, torch's line is quoted word for word."""
    model = nn.Linear(4, 2)
    described = nouns.described(model.state_dict())
    here = {"weight": described["weight"], "x.y": T(()), "bias": 0.5}
    [found] = nouns.findings("W307", here, described)
    assert found.severity is Severity.ERROR
    assert found.torch_says[0] in _refusal(model, {**model.state_dict(), "bias": 0.5})


def test_many_values_are_counted() -> None:
    """Three values are named, the rest is counted."""
    many = {f"a{number}.weight": T(()) for number in range(9)}
    [found] = nouns.findings("W307", {**many, "a": 1, "b": None, "c": "x", "d": [], "e": {}})
    assert found.message == "5 values are not tensors: a (int), b (NoneType), c (str) and 2 more"


# --- W309 ------------------------------------------------------------------------------------------------------------


def test_a_number_as_a_key_is_quoted() -> None:
    """What the finding quotes is what torch and safetensors say."""
    model = nn.Linear(4, 2)
    [found] = nouns.findings("W309", {"model": {**NET, 0: T((2,))}})
    assert found.message == "1 of 4 keys of model is not a text: 0"
    assert found.torch_says[0] in _refusal(model, {**model.state_dict(), 0: torch.ones(2)})
    assert found.torch_says[1] == _safetensors({0: torch.ones(2)})


def test_numbers_only_are_told() -> None:
    """Where weights should be, a dict of nothing but numbers is named as a whole."""
    [found] = nouns.findings("W309", {"state_dict": {0: T((2,)), 1: T((2,)), 2: T((2,)), 3: T((2,))}})
    assert found.message == "all 4 keys of state_dict are not texts: 0, 1, 2, …"
    assert "str(key)" in found.advice


def test_a_huge_number_as_a_key_is_no_trouble() -> None:
    """An integer of thousands of digits is described, not printed."""
    [found] = nouns.findings("W309", {**NET, 10**5000: T((2,))})
    assert len(found.message) < 100
