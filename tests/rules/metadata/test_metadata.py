"""M971 and M973: what stands beside the tensors."""

from __future__ import annotations

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file, save_model

from ckptdoctor.edits import RenameModules, SetMetadata
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, Odict, T
from tests.builders import build
from tests.rules.examined import found


def test_save_file_writes_no_metadata(tmp_path):
    """What fails in other libraries is asking None for its entry."""
    save_file({"w": torch.zeros(2)}, tmp_path / "a.safetensors")
    (finding,) = found(tmp_path / "a.safetensors", "M971")
    assert finding.severity is Severity.WARNING
    assert finding.fix is not None
    assert finding.fix.edits == (SetMetadata("format", "pt"),)
    with safe_open(tmp_path / "a.safetensors", "pt") as file, pytest.raises(AttributeError) as caught:
        file.metadata().get("format")
    assert finding.torch_says[0] in str(caught.value)


def test_save_model_writes_no_format(tmp_path):
    """Metadata of another kind does not help."""
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    model["b"].weight = model["a"].weight
    save_model(model, tmp_path / "a.safetensors")
    (finding,) = found(tmp_path / "a.safetensors", "M971")
    assert "no entry" in finding.message


def test_torch_archives_need_no_format(tmp_path):
    """The rule is about safetensors."""
    torch.save({"w": torch.zeros(2)}, tmp_path / "a.pt")
    assert found(tmp_path / "a.pt", "M971") == []


def test_real_keys_without_their_prefix(tmp_path):
    """A DataParallel state dict whose keys were renamed in place, as many scripts do."""
    model = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.BatchNorm1d(2)))
    state_dict = model.state_dict()
    for key in list(state_dict):
        state_dict[key.removeprefix("module.")] = state_dict.pop(key)
    torch.save({"model": state_dict}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "M973")
    assert finding.fix is not None
    pairs = tuple([(f"module.{index}", f"{index}") for index in range(3)])
    assert finding.fix.edits == (RenameModules(("model",), pairs),)


def test_a_prefix_of_several_tokens(tmp_path):
    """Put before the keys of a whole state dict."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    state_dict = model.state_dict()
    for key in list(state_dict):
        state_dict[f"model.net.{key}"] = state_dict.pop(key)
    torch.save(state_dict, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "M973")
    assert finding.fix is not None
    assert finding.fix.edits == (RenameModules((), (("0", "model.net.0"), ("1", "model.net.1"))),)


@pytest.mark.parametrize("wrap", [False, True], ids=["bare", "wrapped"])
def test_state_dicts_as_torch_makes_them(tmp_path, wrap):
    """Modules without parameters, and wrappers, are in _metadata without keys of their own."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 2)))
    torch.save((torch.nn.DataParallel(model) if wrap else model).state_dict(), tmp_path / "a.pt")
    assert found(tmp_path / "a.pt", "M973") == []


def test_keys_that_moved_different_ways_are_left_alone(tmp_path):
    """One prefix does not explain it, so nothing is guessed."""
    contents = Odict({"x.fc.weight": T((2,)), "y.bn.weight": T((2,))}, {"": {"version": 1}, "fc": {"version": 1}})
    assert found(build(Example("mixed", contents), tmp_path), "M973") == []
