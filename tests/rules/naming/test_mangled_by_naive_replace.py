"""N403: letters that were to be ``module.`` and were not."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from tests.commands import run_here


def named():
    return nn.ModuleDict({"conv1": nn.Conv2d(3, 4, 1), "layers": nn.Linear(4, 5), "classifier": nn.Linear(5, 2)})


def numbered():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))


def cut(model):
    return {key[7:]: value for key, value in model.state_dict().items()}


def findings(folder, *options):
    """What check finds, by code."""
    result = run_here("check", "cut.pt", *options, "--format", "json", cwd=folder)
    return {each["code"]: each for each in json.loads(result.stdout)["files"][0]["findings"]}


@pytest.mark.parametrize("make", [named, numbered])
def test_the_file_alone_is_enough_to_doubt_it(make, tmp_path):
    """Keys that are the ends of names, cut inside a word, never pass for healthy."""
    torch.save(cut(make()), tmp_path / "cut.pt")
    assert findings(tmp_path)["N403"]["severity"] == "warning"


def test_a_target_proves_it_and_brings_the_names_back(tmp_path):
    """Where each key is the end of one key of the target only, no prefix is proposed, and --auto finishes."""
    torch.save(cut(named()), tmp_path / "cut.pt")
    torch.save(named().state_dict(), tmp_path / "like.pt")
    found = findings(tmp_path, "--like", "like.pt")
    assert set(found) == {"N403"}
    assert run_here("fix", "cut.pt", "--auto", "--like", "like.pt", cwd=tmp_path).returncode == 0
    named().load_state_dict(torch.load(tmp_path / "cut.fixed.pt"))


def test_what_fell_together_is_lost_and_said_to_be(tmp_path):
    """Two keys that became one: the file has one of their tensors, and nobody can tell whose."""
    torch.save(cut(numbered()), tmp_path / "cut.pt")
    torch.save(numbered().state_dict(), tmp_path / "like.pt")
    found = findings(tmp_path, "--like", "like.pt")
    assert "2 tensors are lost" in found["N403"]["message"]
    assert "No command brings them back" in found["N403"]["advice"]
    assert not {"N409", "N410", "N423"} & set(found)
    assert run_here("fix", "cut.pt", "--auto", "--like", "like.pt", "--unsafe-fixes", cwd=tmp_path).returncode == 1
    assert not (tmp_path / "cut.fixed.pt").exists()


def test_the_text_of_the_error_proves_it_too(tmp_path):
    """``check --error`` says what ``explain`` does."""
    torch.save(cut(numbered()), tmp_path / "cut.pt")
    with pytest.raises(RuntimeError) as raised:
        numbered().load_state_dict(cut(numbered()))
    (tmp_path / "error.txt").write_text(str(raised.value))
    assert "N403" in findings(tmp_path, "--error", "error.txt")


def test_a_prefix_that_all_keys_lack_is_a_prefix(tmp_path):
    """Seven letters and a dot before every key of the target are no cut."""
    torch.save(named().state_dict(), tmp_path / "cut.pt")
    torch.save(nn.ModuleDict({"encode": named()}).state_dict(), tmp_path / "like.pt")
    assert set(findings(tmp_path, "--like", "like.pt")) == {"N409"}
