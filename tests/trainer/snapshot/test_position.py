"""Positions and the folder names that they give."""

from __future__ import annotations

import pytest

from ckptdoctor.trainer.snapshot.position import Position, parse


@pytest.mark.parametrize(
    ("position", "name"),
    [
        (Position(3), "epoch-0003"),
        (Position(2, 57, 0.5), "epoch-0002-step-0057"),
        (Position(0, 1), "epoch-0000-step-0001"),
        (Position(12345, 67890), "epoch-12345-step-67890"),
    ],
)
def test_name_and_back(position, name):
    """A folder name gives its epoch and step back."""
    assert position.name == name
    found = parse(name)
    assert (found.epoch, found.step) == (position.epoch, position.step)


@pytest.mark.parametrize(
    "name", ["epoch-3", "epoch-0003.partial", "epoch-0003-step-0000", "epoch-0003-step-", "epochs-0003", "epoch-00003"]
)
def test_other_names(name):
    """A name that no position has stands for none."""
    assert parse(name) is None


def test_order():
    """Positions are ordered by epoch, then by step, whatever their names look like."""
    order = [Position(0, 5), Position(1), Position(1, 9), Position(1, 10000), Position(2), Position(10000)]
    assert sorted({*order}) == order
