"""More tensors than are dealt with at once: what takes long is prepared in threads, and everything still works."""

from __future__ import annotations

import json
import struct
from threading import current_thread, main_thread

import pytest

from ckptdoctor.tui.background import FEW
from ckptdoctor.tui.widgets.list_view import ListView
from ckptdoctor.tui.widgets.tree_view import TreeView
from tests.tui import browse, text_of, walk

COUNT = FEW + 10_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A safetensors file of 30,000 tensors of four numbers each."""
    return many(tmp_path_factory.mktemp("large") / "large.safetensors", COUNT, 10)


def many(path, count, parts):
    """A safetensors file of so many tensors of four numbers each, so many of them in each layer."""
    header = {
        f"model.layers.{index // parts}.part{index % parts}.weight": {
            "dtype": "F32",
            "shape": [2, 2],
            "data_offsets": [16 * index, 16 * index + 16],
        }
        for index in range(count)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 16 * count)
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


class Seen(list):
    """A column that counts how many of its rows are looked at while a key waits: not by threads."""

    looked_at = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        self._count(len(found) if isinstance(at, slice) else 1)
        return found

    def __iter__(self):
        self._count(len(self))
        return super().__iter__()

    def _count(self, rows):
        if current_thread() is main_thread():
            Seen.looked_at += rows


def test_a_key_costs_the_same_in_a_file_of_any_size(tmp_path, monkeypatch):
    """Rows that are looked at, and lines that are drawn, depend on the screen alone."""
    keys = ("end", "home", "right", "end", "pageup", "home", "down", "t", "end", "home", "pagedown", "t", "down", "up")
    drawn = []
    monkeypatch.setattr(TreeView, "draw", noted(TreeView.draw, drawn))
    monkeypatch.setattr(ListView, "draw", noted(ListView.draw, drawn))

    def watched(app):
        table = app.screen.opened.table
        if not isinstance(table.tensors, Seen):
            for name in ("tensors", "elements", "nbytes", "kinds"):
                setattr(table, name, Seen(getattr(table, name)))
        found = Seen.looked_at, len(drawn)
        Seen.looked_at = 0
        drawn.clear()
        return found

    costs = []
    for layers in (80, 320):
        path = many(tmp_path / f"{layers}.safetensors", 50 * layers, 50)
        costs.append(walk(path, (), *[(key,) for key in keys], look=watched)[1:])
    for key, (rows, lines), (rows_of_more, lines_of_more) in zip(keys, *costs, strict=True):
        assert lines_of_more <= lines + 1 and rows_of_more <= rows + 50, (key, costs)
    assert sum(lines for _, lines in costs[0]) > 100


def noted(draw, drawn):
    """The same method, which notes each line that it draws."""

    def draw_and_note(self, number, width):
        drawn.append(number)
        return draw(self, number, width)

    return draw_and_note


@pytest.mark.slow
def test_two_side_by_side(large):
    """Lines of a comparison are made in a thread, with values, sorted and filtered."""
    alike, narrowed, same = walk(
        large, (), ("slash", "text:layers.77."), ("ctrl+u", "enter", "v", "o"), other=str(large)
    )
    assert "30,000 tensors alike" in alike
    assert "10 of 30,000 tensors" in narrowed
    assert "30,000 tensors the same" in same
