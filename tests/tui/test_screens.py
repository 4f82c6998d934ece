"""Screens at several sizes, held against text files that people have looked at."""

from __future__ import annotations

import pytest

from tests.tui import NARROW, NORMAL, WIDE, screen


@pytest.mark.parametrize("size", [NARROW, NORMAL, WIDE], ids=str)
def test_opened(size):
    """The contents are there, the weights unfolded, with what is wrong below."""
    screen("opened", "resnet.pt", size=size)


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_tensor(size):
    """A tensor under the cursor shows what the headers say of it."""
    screen("tensor", "resnet.pt", "down", "down", "down", size=size)


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_finding(size):
    """A finding under the cursor shows cause, message and repair."""
    screen("finding", "resnet.pt", "shift+tab", size=size)


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_list(size):
    """All tensors as one list, by size."""
    screen("list", "resnet.pt", "t", "o", "o", size=size)


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_filter(size):
    """A filter narrows the tree, says how much it lets through, and opens what is left."""
    screen("filter", "resnet.pt", "slash", "text:bn1 layer2 !bias", size=size)


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_help(size):
    """The help lists all keys that work."""
    screen("help", "resnet.pt", "question_mark", size=size)


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_damaged(size):
    """A file that cannot be read says why, and what can be done."""
    screen("damaged", "cut.pt", size=size)


def test_safetensors():
    """Modules at the top, and the metadata of the file as a branch."""
    screen("safetensors", "plain.safetensors", "end", "right")
