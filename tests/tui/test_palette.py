"""The command palette: everything there is to do, by name."""

from __future__ import annotations

import pytest

from ckptdoctor.tui.screens.help import HelpScreen
from ckptdoctor.tui.widgets.filter_bar import FilterBar
from ckptdoctor.tui.widgets.list_view import ListView
from tests.tui import NARROW, browse, walk


def test_it_lists_what_there_is_to_do():
    """Before anything is typed: what the screen can do, with the keys for it; moving about is not worth a line.

    Of what every Textual application offers, only the colours: nothing there writes a file without asking.
    """
    text = browse("resnet.pt", "ctrl+p", size=(120, 90))
    assert "Read every byte: checksums and values" in text
    assert "Filter by name, dtype" in text
    assert "One line down" not in text
    assert "Change the colours" in text
    assert "Screenshot" not in text and "Maximize" not in text


def test_a_command_is_found_by_its_words_and_runs():
    """Typed in part, entered, done."""

    def look(app):
        screen = app.screen
        if isinstance(screen, HelpScreen):
            return "help"
        return [each.__name__ for each in (ListView, FilterBar) if screen.query_one(each).display]

    words = ("list of all", "language", "filter by")
    stages = [("escape", "colon", f"text:{each}", "enter") for each in words]
    assert walk("resnet.pt", (), *stages, look=look) == [[], ["ListView"], "help", ["ListView", "FilterBar"]]


def test_escape_leaves_everything_as_it_was():
    """The tree is there again, with its cursor."""
    before, after = walk("resnet.pt", ("down",), ("ctrl+p", "escape"), size=NARROW)
    assert before == after


@pytest.mark.parametrize("opened", [("colon",), ("colon", "text:change the colours", "enter")], ids=["all", "colours"])
def test_turning_pages_where_nothing_was_found_changes_nothing(opened):
    """Neither among the commands nor among the colours."""
    turning = ("pageup", "pagedown", "ctrl+end", "ctrl+home")
    texts = walk("resnet.pt", (*opened, "text:zzzz"), *[(key,) for key in turning])
    assert "No matches" in texts[0]
    assert texts[1:] == [texts[0]] * len(turning)
