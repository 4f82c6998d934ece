"""The command palette: everything there is to do, by name."""

from __future__ import annotations

import pytest

from ckptdoctor.tui.screens.help import HelpScreen
from ckptdoctor.tui.widgets.filter_bar import FilterBar
from ckptdoctor.tui.widgets.list_view import ListView
from tests.tui import NARROW, browse, text_of


def listed(app):
    """The texts of the palette."""
    return text_of(app)


def test_it_lists_what_there_is_to_do():
    """Before anything is typed: what the screen can do, with the keys for it; moving about is not worth a line."""
    text = browse("resnet.pt", "ctrl+p", look=listed, size=(120, 60))
    assert "Read every byte: checksums and values" in text
    assert "Show only what fits" in text
    assert "One line down" not in text


def test_a_command_is_found_by_its_words_and_runs():
    """Typed in part, entered, done."""
    assert browse(
        "resnet.pt", "colon", "text:one list", "enter", look=lambda app: app.screen.query_one(ListView).display
    )
    assert browse("resnet.pt", "colon", "text:language", "enter", look=lambda app: isinstance(app.screen, HelpScreen))
    assert browse(
        "resnet.pt", "colon", "text:only what", "enter", look=lambda app: app.screen.query_one(FilterBar).display
    )


def test_escape_leaves_everything_as_it_was():
    """The tree is there again, with its cursor."""
    assert browse("resnet.pt", "down", "ctrl+p", "escape", size=NARROW) == browse("resnet.pt", "down", size=NARROW)


def test_nothing_there_writes_a_file_without_asking():
    """Of what every Textual application offers, only the colours."""
    text = browse("resnet.pt", "ctrl+p", look=listed, size=(120, 60))
    assert "Change the colours" in text
    assert "Screenshot" not in text and "Maximize" not in text


@pytest.mark.parametrize("turning", ["pageup", "pagedown", "ctrl+end", "ctrl+home"])
def test_turning_pages_where_nothing_was_found_changes_nothing(turning):
    """Neither among the commands nor among the colours."""
    assert "No matches" in browse("resnet.pt", "colon", "text:zzzz", turning, look=listed)
    keys = ["colon", "text:change the colours", "enter", "text:zzzz", turning]
    assert "No matches" in browse("resnet.pt", *keys, look=listed)
