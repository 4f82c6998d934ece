"""A704: tensors that a target has as one, and that differ in the file."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import ckptdoctor
from tests.commands import run_here


class Tied(nn.Module):
    """One matrix under two names, neither of which is a head's of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Linear(8, 8, bias=False)
        self.dec = nn.Linear(8, 8, bias=False)
        self.dec.weight = self.enc.weight


def weights(same=False, prefix=""):
    torch.manual_seed(0)
    enc = torch.randn(8, 8)
    return {f"{prefix}enc.weight": enc, f"{prefix}dec.weight": enc.clone() if same else torch.randn(8, 8)}


def found(path, deep=False, **target):
    report = ckptdoctor.check(str(path), deep=deep, **(target or {"model": Tied()}))
    return [finding for finding in report.findings if finding.code == "A704"]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_two_matrices_for_one_parameter(tmp_path, deep, prefix):
    """Checksums prove that they differ, and torch loses one of them; where they are the same nothing is said."""
    torch.save(weights(prefix=prefix), tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", deep)
    assert "enc.weight" in finding.message
    assert "dec.weight" in finding.message
    model = Tied()
    model.load_state_dict({key.removeprefix(prefix): value for key, value in weights(prefix=prefix).items()})
    kept = [torch.equal(model.state_dict()[key], weights()[key]) for key in weights()]
    assert kept == [False, True]
    torch.save(weights(same=True, prefix=prefix), tmp_path / "b.pt")
    assert found(tmp_path / "b.pt", deep) == []
    torch.save(Tied().state_dict(), tmp_path / "c.pt")
    assert found(tmp_path / "c.pt", deep) == []


@pytest.mark.parametrize("kind", ["safetensors", "legacy"])
def test_without_checksums_only_a_deep_examination_knows(tmp_path, kind):
    """The bytes are compared; without that nothing is said that was not proven."""

    def save(contents):
        if kind == "legacy":
            torch.save(contents, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
        else:
            save_file(contents, tmp_path / "a.pt", {"format": "pt"})

    save(weights())
    assert found(tmp_path / "a.pt") == []
    assert len(found(tmp_path / "a.pt", deep=True)) == 1
    save(weights(same=True))
    assert found(tmp_path / "a.pt", deep=True) == []


def test_another_file_shows_the_tie_as_well(tmp_path):
    """A torch file of the tied model has one storage for both; a target with two tensors ties nothing."""
    torch.save(weights(), tmp_path / "a.pt")
    torch.save(Tied().state_dict(), tmp_path / "tied.pt")
    shown = run_here("check", "a.pt", "--like", "tied.pt", cwd=tmp_path).stdout.decode()
    assert 'warning A704 tied-but-diverged · "dec.weight" and "enc.weight" differ, but tied.pt has one tensor' in shown
    torch.save(weights(same=True), tmp_path / "two.pt")
    assert found(tmp_path / "a.pt", like=str(tmp_path / "two.pt")) == []
