"""Screens at several sizes, held against text files that people have looked at."""

from __future__ import annotations

import pytest

from tests.tui import NARROW, NORMAL, WIDE, screen, screens

STAGES = {
    "opened": (),  # the contents are there, the weights unfolded, with what is wrong below
    "help": ("question_mark",),  # all keys that work
    "filter": ("escape", "slash", "text:bn1 layer2 !bias"),  # says how much it lets through, and opens what is left
    "tensor": ("escape", "home", "down", "down", "down"),  # what the headers say of a tensor under the cursor
    "finding": ("shift+tab",),  # cause, message and repair of a finding under the cursor
    "list": ("tab", "home", "t", "o", "o"),  # all tensors, by size
}


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_one_after_the_other(size):
    """Every screen has what its place in ``STAGES`` says."""
    screens("resnet.pt", STAGES, size=size)


def test_opened_where_there_is_much_room():
    """The details stand beside the contents."""
    screen("opened", "resnet.pt", size=WIDE)


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_damaged(size):
    """A file that cannot be read says why, and what can be done."""
    screen("damaged", "cut.pt", size=size)


def test_safetensors():
    """Modules at the top, and the metadata of the file as a branch."""
    screen("safetensors", "plain.safetensors", "end", "right")
