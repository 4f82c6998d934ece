"""The Python that Y copies works as it is written, and gives what the cursor is on."""

from __future__ import annotations

import argparse
from collections import Counter, OrderedDict

import numpy as np
import pytest
import safetensors.torch
import torch

import ckptdoctor
from tests.tui import browse, walk

NAMES = {"torch": torch, "safetensors": safetensors, "ckptdoctor": ckptdoctor}


class Net(torch.nn.Module):
    """A model that is saved as a whole."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 3)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def copied_at_every_row(path):
    """What Y copies at every row of the tree, all of which is opened on the way; None where it copies nothing."""
    stages = [("home", "right", "Y"), *[("down", "asterisk", "Y")] * 40]
    lines = []

    def look(app):
        lines.append(app.clipboard or None)
        app._clipboard = ""

    walk(path, *stages, look=look)
    return lines


def loaded(line):
    """What the line of Python gives."""
    return eval(line, dict(NAMES))


def test_an_object_is_gone_into_by_what_it_comes_as():
    """A model that was saved as a whole, and a Namespace, come as records: every row is found in them."""
    torch.save(Net(), "model.pt")
    torch.save({"state": OrderedDict(w=torch.ones(2)), "args": argparse.Namespace(lr=0.1, layers=[1, 2])}, "run.pt")
    for path, wanted in (("model.pt", "conv1"), ("run.pt", "args")):
        lines = copied_at_every_row(path)
        assert all(lines) and any(wanted in line for line in lines)
        for line in lines:
            loaded(line)
    assert 'ckptdoctor.load("run.pt")["args"].state["lr"]' in lines
    assert loaded('ckptdoctor.load("run.pt")["args"].state["layers"][1]') == 2


def test_what_torch_reads_is_loaded_with_torch():
    """Whatever is found in the names of its keys."""
    weights = OrderedDict((f"module.{name}", torch.ones(3)) for name in ("a", "b"))
    torch.save(weights, "mod.pt")
    safetensors.torch.save_file(
        {"a.weight": torch.ones(2, 3), "b": torch.ones(3).to(torch.float8_e4m3fn)}, "f.safetensors"
    )
    assert browse("mod.pt", "end", "Y", look=lambda app: app.clipboard) == (
        'torch.load("mod.pt", map_location="cpu")["module.b"]'
    )
    line = browse("f.safetensors", "end", "Y", look=lambda app: app.clipboard)
    assert line.startswith('safetensors.torch.load_file("f.safetensors")["') and loaded(line) is not None


def test_odd_keys_and_values():
    """Keys that are no text, sequences, attributes of a dict, arrays and counters."""
    weights = OrderedDict(w=torch.ones(1))
    weights._metadata = OrderedDict([("", {"version": 1})])
    torch.save({5: [1, (2, 3)], (1, 2): 4, None: 5, "sd": weights, "n": np.float64(3), "": 6}, "odd.pt")
    lines = copied_at_every_row("odd.pt")
    assert [line for line in lines if line is None] == []
    for line in lines:
        loaded(line)
    values = [loaded(line) for line in lines]
    assert 4 in values and 5 in values and 6 in values and (2, 3) in values


def test_what_cannot_be_loaded_by_itself(folder):
    """Nothing is copied, and it says so: a set has no order."""
    torch.save({"w": torch.ones(1), "set": {1}}, "set.pt")
    keys = ("home", "down", "right", "right", "Y")
    shown = browse("set.pt", *keys, look=lambda app: (app.clipboard, [each.message for each in app._notifications]))
    assert shown == ("", ["set/0 cannot be loaded by itself: no line of Python was copied."])


def test_an_object_with_entries():
    """A subclass of dict has its entries apart from its state."""
    torch.save({"c": Counter(a=1)}, "counter.pt")
    line = copied_at_every_row("counter.pt")[-1]
    assert line is not None and loaded(line) == 1
