"""The line of the filter: what was typed is not lost, and there is a way out of it downwards."""

from __future__ import annotations

import pytest
from textual.widgets import Input

from ckptdoctor.errors import UsageError
from ckptdoctor.tui.widgets.filter_bar import FilterBar
from ckptdoctor.tui.widgets.tree_view import TreeView
from tests.tui import NARROW, browse, text_of, walk


def seen(app):
    """What is in the line, what is let through, and whether the tree has the focus."""
    bar = app.screen.query_one(FilterBar)
    return bar.query_one(Input).value, bar.text, isinstance(app.focused, TreeView)


def test_what_is_being_typed_comes_back_below_the_history():
    """Up shows what was entered before, and down what was being typed, as in a shell."""
    stages = (("slash", "text:conv1", "enter", "slash", "ctrl+u", "text:fc.w"), ("up",), ("down",))
    assert walk("resnet.pt", *stages, look=seen) == [
        ("fc.w", "fc.w", False),
        ("conv1", "conv1", False),
        ("fc.w", "fc.w", False),
    ]


def test_down_goes_into_the_results():
    """Where nothing newer was typed, whether or not anything was entered before; the filter stays."""
    stages = (("slash", "text:fc", "down"), ("slash", "up", "down", "down"))
    assert walk("resnet.pt", *stages, look=seen) == [("fc", "fc", True), ("fc", "fc", True)]


def test_down_out_of_an_empty_line():
    """It hides the line, as enter does."""
    (shown,) = walk(
        "resnet.pt", ("slash", "down"), look=lambda app: (app.screen.query_one(FilterBar).display, seen(app))
    )
    assert shown == (False, ("", "", True))


@pytest.mark.parametrize("other", [None, "plain.safetensors"], ids=["one", "two"])
@pytest.mark.parametrize("typed", ["dtype:float33", "is:wobbly", ">5QB", "shape:axb"])
def test_all_that_is_wrong_can_be_read(typed, other):
    """A sentence that is longer than the room next to the line goes on below; it has its end on the screen."""

    def look(app):
        with pytest.raises(UsageError) as wrong:
            app.screen.query_one(FilterBar)._check(typed)
        return text_of(app), wrong.value.message

    text, message = browse("resnet.pt", "slash", f"text:{typed}", size=NARROW, other=other, look=look)
    words = iter(text.split())
    assert all(word in words for word in message.split())
