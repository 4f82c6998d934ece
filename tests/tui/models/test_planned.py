"""What a plan says, and names for outputs."""

from __future__ import annotations

import os

import pytest
import torch

from ckptdoctor.tui.models.planned import free, objection
from ckptdoctor.tui.widgets.fix_list import FixList
from ckptdoctor.tui.widgets.plan import PlanView
from tests.tui import walk

ZIP = "torch zip"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with an original and another file."""
    monkeypatch.chdir(tmp_path)
    for name in ("model.pt", "taken.pt"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    os.symlink("nowhere", tmp_path / "broken.pt")


@pytest.mark.parametrize(
    ("name", "format", "said"),
    [
        ("new.pt", ZIP, ""),
        ("folder/new.bin", ZIP, ""),
        ("", ZIP, "needs a name"),
        ("folder/", ZIP, "needs a name"),
        ("model.pt", ZIP, "is the original"),
        ("folder/../model.pt", ZIP, "is the original"),
        ("taken.pt", ZIP, "already exists"),
        ("broken.pt", ZIP, "already exists"),
        ("none/new.pt", ZIP, "no folder none"),
        ("new.safetensors", ZIP, "must not end"),
        ("new.pt", "safetensors", "must end"),
        ("new.safetensors", "safetensors", ""),
        (".x.1.ckptdoctor-tmp.pt", ZIP, "unfinished"),
    ],
)
def test_objection(name, format, said):
    """What is there is never replaced, and the name fits what is in it."""
    found = objection(name, "model.pt", format)
    assert said in found
    assert bool(said) is bool(found)


def test_a_folder_is_not_the_name_of_a_file():
    """What was typed is answered, and not the name that it stands for; a folder that has no such file is a place."""
    assert objection("./model.pt", "model.pt", ZIP, ".") == (
        ". is a folder that has model.pt already: add the name of the new file."
    )
    assert objection("folder/model.pt", "model.pt", ZIP, "folder") == ""


def test_formats_have_their_names():
    """As everywhere else that people read."""
    said = objection("new.safetensors", "model.pt", ZIP)
    assert said == "It stays PyTorch .pt (zip): its name must not end in .safetensors."


def test_free():
    """A number is added where the name is taken."""
    assert free("new.pt") == "new.pt"
    assert free("taken.pt") == "taken-2.pt"
    with open("taken-2.pt", "wb"):
        assert free("taken.pt") == "taken-3.pt"


@pytest.mark.parametrize("code", ["A707", "A708", "A709"])
def test_every_step_says_what_it_does(code):
    """Also where the title of the step and its only change are the same words: these are in the plan once."""
    values = {
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "expanded": torch.ones(1).expand(5, 7),
        "sparse": torch.eye(6).to_sparse(),
    }
    torch.save(values, "layouts.pt")
    (offered,) = walk("layouts.pt", ("f",), look=lambda app: app.screen.query_one(FixList).offered)
    keys = ["down"] * [each.code for each in offered].index(code)
    ((step, *told),) = walk(
        "layouts.pt", ("f", "home", *keys, "space"), look=lambda app: app.screen.query_one(PlanView).rows
    )
    assert step.look == "step" and step.text.startswith(code)
    assert len(told) == 1 and "1 tensor" in told[0].text
