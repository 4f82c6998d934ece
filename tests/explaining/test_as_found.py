"""Explanations that the file at hand makes exact: messages of torch that name no more than a class, or no place."""

from __future__ import annotations

import argparse
import datetime
import json
import re
import traceback

import numpy
import pytest
import torch

from tests.commands import run_here

NET = torch.nn.Linear(3, 2)
WEIGHTS = NET.state_dict()


def said(folder, contents, load):
    """What explain makes of the failure of ``load`` and of the file with these contents."""
    torch.save(contents, folder / "a.pt")
    try:
        load(torch.load(folder / "a.pt"))
    except Exception:
        (folder / "a.txt").write_text(traceback.format_exc())
    done = run_here("explain", "a.pt", "--error", "a.txt", "--format", "json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("contents", "code"),
    [
        ({"policy": WEIGHTS, "activation_fn": torch.nn.ReLU}, "P201"),
        ({"policy": WEIGHTS, "f": torch.nn.functional.relu}, "P201"),
        ({"policy": WEIGHTS, "t": datetime.timedelta(1)}, "P201"),
        ({"policy": WEIGHTS, "t": frozenset([1])}, "P201"),
        ({"policy": WEIGHTS, "t": range(3)}, "P201"),
        ({"policy": WEIGHTS, "t": numpy.dtype("float32")}, "P202"),
        ({"policy": WEIGHTS, "t": numpy.random.default_rng()}, "P202"),
        ({"policy": WEIGHTS, "t": argparse.Namespace(lr=1)}, "P201"),
        (NET, "P204"),
    ],
)
def test_what_is_rejected_is_what_the_file_holds(tmp_path, contents, code):
    """The verdict is about the cause that is printed, and each command finishes and leaves a file that loads."""
    document = said(tmp_path, contents, NET.load_state_dict)
    root = document["explanations"][0]
    assert root["code"] == code
    assert f"check finds {code} in a.pt" in document["verdict"]["why"]
    assert ("whole" in root["meaning"]) is (code == "P204")
    repairs = [way["command"] for way in root["ways"] if way["command"].startswith("ckptdoctor fix")]
    for command in repairs:
        assert run_here(*command.split()[1:], cwd=tmp_path).returncode == 0
        torch.load(tmp_path / "a.fixed.pt")
    assert bool(repairs) is (code == "P204" or isinstance(contents.get("t"), argparse.Namespace))


def test_the_optimizer_is_inside_the_file(tmp_path):
    """The whole checkpoint was passed: the key of its optimizer is named, and what is printed works."""
    optimizer = torch.optim.Adam(NET.parameters())
    document = said(tmp_path, {"model": WEIGHTS, "optim": optimizer.state_dict()}, optimizer.load_state_dict)
    root = document["explanations"][0]
    assert document["verdict"]["confirmed"] is True
    (way,) = root["ways"]
    key = re.search(r'torch\.load\(path\)\["(\w+)"\]', way["command"])
    assert key is not None
    optimizer.load_state_dict(torch.load(tmp_path / "a.pt")[key[1]])


def test_without_an_optimizer_in_the_file_nothing_is_promised(tmp_path):
    """Weights that were passed as the state of an optimizer are one of the causes that are named."""
    optimizer = torch.optim.Adam(NET.parameters())
    document = said(tmp_path, WEIGHTS, optimizer.load_state_dict)
    assert "a model's weights" in document["explanations"][0]["meaning"]
    assert document["verdict"]["confirmed"] is not True


@pytest.mark.parametrize(
    "contents",
    [
        torch.zeros(3),
        None,
        [torch.zeros(3)],
        "text",
        {0: torch.zeros(2), 1: torch.zeros(2)},
        {0: torch.zeros(2, 2), 1: torch.zeros(2)},
    ],
)
def test_contents_without_names_are_the_cause(tmp_path, contents):
    """The file plainly is what torch says it was given."""
    document = said(tmp_path, contents, NET.load_state_dict)
    assert document["verdict"]["confirmed"] is True, document["verdict"]
    other = said(tmp_path, WEIGHTS, lambda weights: NET.load_state_dict(contents))
    assert other["verdict"]["confirmed"] is not True


@pytest.mark.parametrize("name", ["torch.nn.modules.activation.ReLU", "torch.nn.functional.relu"])
def test_an_activation_alone_is_not_a_whole_model(name, tmp_path):
    """Configs have it as a setting; without the file no whole model is named first."""
    text = f"WeightsUnpickler error: Unsupported global: GLOBAL {name} was not an allowed global by default."
    done = run_here("explain", "--format", "json", cwd=tmp_path, stdin=text.encode())
    root = json.loads(done.stdout)["explanations"][0]
    assert root["code"] == "P201"
    assert "whole pickled model" not in root["meaning"]
