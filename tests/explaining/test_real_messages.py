"""What the installed torch and safetensors say, explained."""

from __future__ import annotations

import re
import textwrap

import pytest
import torch

from ckptdoctor.explaining.explanation import explain
from tests.explaining.failing import CASES, load_tagged, traceback_of

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of much that is done here on purpose


def root(text):
    """The code of the root of what a text says; None when nothing is known."""
    hits = explain(text).hits
    return hits[0].code if hits else None


@pytest.mark.parametrize("name", CASES)
def test_real_failures(name, tmp_path):
    """The whole traceback leads to the rule, as it is and in what terminals, loggers and ranks make of it."""
    code, make = CASES[name]
    text = traceback_of(make, tmp_path)
    assert root(text) == code
    assert root("".join(f"2026-05-01 12:00:00,123 ERROR [rank0]: {line}" for line in text.splitlines(True))) == code
    assert root(text * 8) == code
    assert root("\x1b[31m" + text.replace(" ", " \x1b[0m") + "\x1b[0m") == code
    assert root(wrap(text)) == code
    assert root("".join(f"│ {line:<200} │\n" for line in text.splitlines())) == code


@pytest.mark.parametrize("name", CASES)
def test_nobody_is_told_to_turn_weights_only_off(name, tmp_path):
    """torch recommends it in several of these messages; we never do."""
    explained = explain(traceback_of(CASES[name][1], tmp_path))
    told = "\n".join([hit.meaning + "".join(way.label + way.command for way in hit.ways) for hit in explained.hits])
    assert not re.search(r"weights_only\W+(set to\W+)?(False|0)", told)


def wrap(text):
    """Lines broken after 60 characters, in the middle of words."""
    return "\n".join("\n".join(textwrap.wrap(line, 60)) for line in text.splitlines())


def test_the_file_is_the_one_that_was_loaded(tmp_path):
    """FileNotFoundError names its path."""
    text = traceback_of(lambda folder: torch.load("runs/best of all.pth"), tmp_path)
    assert explain(text).file == "runs/best of all.pth"


def test_of_chained_exceptions_the_first_is_the_root(tmp_path):
    """What a fallback then says is a remark."""

    def fall_back(folder):
        try:
            load_tagged("cuda:0")(folder)
        except RuntimeError:
            torch.jit.load(folder / "model.pt")

    text = traceback_of(fall_back, tmp_path)
    assert "During handling of the above exception" in text
    assert [hit.code for hit in explain(text).hits] == ["D601", "C108"]
