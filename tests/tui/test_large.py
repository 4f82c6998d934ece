"""More tensors than are dealt with at once: what takes long is prepared in threads, and everything still works."""

from __future__ import annotations

import json
import struct

import pytest

from ckptdoctor.tui.background import FEW
from ckptdoctor.tui.widgets.list_view import ListView
from ckptdoctor.tui.widgets.tree_view import TreeView
from tests.tui import browse, text_of, walk

COUNT = FEW + 10_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A safetensors file of 30,000 tensors of four numbers each."""
    path = tmp_path_factory.mktemp("large") / "large.safetensors"
    header = {
        f"model.layers.{index // 10}.part{index % 10}.weight": {
            "dtype": "F32",
            "shape": [2, 2],
            "data_offsets": [16 * index, 16 * index + 16],
        }
        for index in range(COUNT)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 16 * COUNT)
    return path


def lines(app):
    """How many lines the tree has, and where its cursor is."""
    tree = app.screen.query_one(TreeView)
    return tree.count(), tree.cursor


def test_opening_a_level_with_many_below(large):
    """The line of 3,000 modules that are alike opens, and the last of them is where the end is."""
    assert browse(large, "right", "end", "right", look=lines) == (11 + COUNT // 10, COUNT // 10)


def test_another_order_keeps_what_is_open(large):
    """Sorting all of it leaves the open levels open."""
    assert browse(large, "right", "o", look=lines)[0] == 1 + COUNT // 10


def test_filter(large):
    """A filter over all of it leaves what fits, and forgetting it brings the rest back."""
    stages = (("right",), ("slash", "text:part3"), ("escape",), ("slash", "text:layers.77. part3"))
    opened, _, again, narrowed = walk(large, *stages, look=lambda app: (lines(app)[0], text_of(app)))
    assert again[0] == opened[0] == 1 + COUNT // 10
    assert " 1 of 30,000 tensors" in narrowed[1] and narrowed[0] < opened[0]


def test_list(large):
    """The list has a line for every tensor, in any order."""
    assert browse(large, "t", "o", "end", look=lambda app: app.screen.query_one(ListView).cursor) == COUNT - 1


@pytest.mark.slow
def test_two_side_by_side(large):
    """Lines of a comparison are made in a thread, with values, sorted and filtered."""
    alike, narrowed, same = walk(
        large, (), ("slash", "text:layers.77."), ("ctrl+u", "enter", "v", "o"), other=str(large)
    )
    assert "30,000 tensors alike" in alike
    assert "10 of 30,000 tensors" in narrowed
    assert "30,000 tensors the same" in same
