"""How a finding asks for plain data: by one name where that converts the whole file."""

from __future__ import annotations

import argparse
import pathlib
import sys
from types import ModuleType

import numpy as np
import torch

from ckptdoctor.examine.file import check


class Config:
    """Of a script that nobody else has."""

    def __init__(self) -> None:
        self.rate = 0.1


def findings(path, **contents):
    """The findings on what torch refuses, by code."""
    torch.save({"model": {"w": torch.ones(2)}, **contents}, path)
    return {each.code: each for each in check(str(path)).findings if each.code.startswith("P")}


def test_all_that_can_be_plain_is_asked_for_at_once(tmp_path):
    """A namespace, a NumPy number and a path are one command's work, whichever of them is read about first."""
    found = findings(tmp_path / "a.pt", args=argparse.Namespace(lr=1), acc=np.float64(0.5), at=pathlib.Path("x"))
    assert {code: each.fix.option for code, each in found.items()} == dict.fromkeys(
        ("P201", "P202", "P203"), "--weights-only-safe"
    )


def test_next_to_a_class_of_ones_own_only_the_rest_is_converted(tmp_path, monkeypatch):
    """To keep that class's attributes is a choice, and the finding about it says how."""
    own = ModuleType("ownscript")
    own.Config = Config
    monkeypatch.setitem(sys.modules, "ownscript", own)
    monkeypatch.setattr(Config, "__module__", "ownscript")
    found = findings(tmp_path / "a.pt", args=argparse.Namespace(lr=1), config=Config())
    assert found["P201"].fix.option == "--select P201"
    assert found["P205"].advice.endswith("as plain data: ckptdoctor fix FILE --weights-only-safe")


def test_what_cannot_be_plain_leaves_the_rest_to_its_rule(tmp_path):
    """--weights-only-safe would refuse the whole file for the sake of a function."""
    found = findings(tmp_path / "a.pt", acc=np.float64(0.5), act=len)
    assert found["P202"].fix.option == "--select P202"
