"""Programs, tensors alone and models that were saved whole give their tensors, or are refused."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ckptdoctor
from ckptdoctor.errors import RefusedError


class Model(torch.nn.Module):
    """One with a constant in its code, and a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)
        self.shift = torch.ones(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Uses all of them."""
        return self.fc(x) + self.shift + torch.tensor([1.0, 2.0])


def program(kind: str, model: Model, folder: Path) -> Path:
    """The model as a program of one kind."""
    path = folder / ("model.pt2" if kind == "exported" else "model.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "exported":
            torch.export.save(torch.export.export(model, (torch.ones(1, 3),)), path)
        elif kind == "traced":
            torch.jit.trace(model, torch.ones(1, 3)).save(str(path))
        else:
            torch.jit.script(model).save(str(path))
    return path


@pytest.mark.parametrize("kind", ["exported", "traced", "scripted"])
def test_a_program_gives_its_state_dict(kind, tmp_path):
    """The tensors that it has beside it are left out, and that is said; with --flatten they are there."""
    model = Model()
    path = program(kind, model, tmp_path)
    report = ckptdoctor.convert(str(path), str(tmp_path / "out.safetensors"))
    found = load_file(tmp_path / "out.safetensors")
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(found[key], value) for key, value in model.state_dict().items())
    assert [each for each in report.left_out if "of the program (" in each] == list(report.left_out) != []
    flat = ckptdoctor.convert(str(path), str(tmp_path / "flat.safetensors"), flatten=True)
    assert flat.tensors > report.tensors and flat.left_out == ()


def test_an_attribute_of_a_dict_is_no_constant_of_a_program(tmp_path):
    """In other files it takes a choice, as before."""
    state = OrderedDict(w=torch.ones(2))
    state.constants = {"x": torch.ones(1)}
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(RefusedError, match="elsewhere   1 tensor\n"):
        ckptdoctor.convert(str(tmp_path / "model.pt"), str(tmp_path / "out.safetensors"))


@pytest.mark.parametrize("suffix", [".pt", ".npy"])
def test_a_tensor_alone(suffix, tmp_path):
    """It is called “tensor”, and that is said."""
    path = tmp_path / f"mean{suffix}"
    np.save(path, np.arange(3.0)) if suffix == ".npy" else torch.save(torch.arange(3.0), path)
    report = ckptdoctor.convert(str(path), str(tmp_path / "out.safetensors"))
    assert load_file(tmp_path / "out.safetensors")["tensor"].tolist() == [0, 1, 2]
    assert report.called == "tensor"


def test_a_tensor_that_was_asked_for_keeps_its_name(tmp_path):
    """The last part of its place."""
    torch.save({"stats": {"mean": torch.ones(2), "n": 1}}, tmp_path / "stats.pt")
    report = ckptdoctor.convert(str(tmp_path / "stats.pt"), str(tmp_path / "out.safetensors"), root="stats/mean")
    assert list(load_file(tmp_path / "out.safetensors")) == ["mean"]
    assert report.called is None


def test_a_model_that_was_saved_whole(tmp_path):
    """The refusal names the repair that goes first, and with it the conversion works."""
    path, output = tmp_path / "model.pt", tmp_path / "out.safetensors"
    torch.save(torch.nn.Linear(2, 2), path)
    with pytest.raises(RefusedError, match="ckptdoctor fix FILE --select P204"):
        ckptdoctor.convert(str(path), str(output))
    ckptdoctor.fix(str(path), select=["P204"], output=str(tmp_path / "fixed.pt"))
    ckptdoctor.convert(str(tmp_path / "fixed.pt"), str(output))
    assert load_file(output).keys() == {"weight", "bias"}
