"""Where somebody has been: back and forward, bookmarks, files that were opened before, and jumps to a line."""

from __future__ import annotations

import json
import shutil

import pytest

from ckptdoctor.tui.screens.browser import BrowserScreen
from ckptdoctor.tui.screens.picker import PickerScreen
from ckptdoctor.tui.screens.tensor import TensorScreen
from ckptdoctor.tui.widgets.detail import Detail
from ckptdoctor.tui.widgets.tree_view import TreeView
from tests.tui import browse, text_of, walk

BACK, FORWARD = "less_than_sign", "greater_than_sign"


@pytest.fixture
def remembering(tmp_path, monkeypatch):
    """A home of its own, in which something is remembered."""
    monkeypatch.delenv("CKPTDOCTOR_HISTORY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "ckptdoctor" / "browser.json"


def place(app):
    """The screen, and in a tree the name under the cursor."""
    screen = app.screen
    if not isinstance(screen, BrowserScreen):
        return type(screen).__name__
    item = screen.query_one(TreeView).line().item
    return screen.opened.name_of(item)


def test_back_and_forward():
    """From what a finding is about to where the cursor was; from a tensor to the tree; and each of them again."""
    stages = {
        ("end",): "log",
        ("n", "n", "n"): "state_dict/module.conv1.weight",
        ("enter",): "TensorScreen",
        (BACK,): "state_dict/module.conv1.weight",
        (BACK, BACK, BACK, BACK, BACK): "log",
        (FORWARD, FORWARD, FORWARD): "state_dict/module.conv1.weight",
        (FORWARD,): "TensorScreen",
    }
    assert dict(zip(stages, walk("resnet.pt", *stages, look=place), strict=True)) == stages


def test_a_screen_is_come_back_to_as_it_was():
    """The cursor of a tensor stays where it was; a new screen ends the way forward."""

    def seen(app):
        return app.screen.query_one("#values").index if isinstance(app.screen, TensorScreen) else place(app)

    opening = ("home", "down", "down", "down", "enter")
    found = walk(
        "resnet.pt",
        (*opening, "down", "escape"),
        (FORWARD,),
        ("escape", "up", "down", "enter", "escape", "enter"),
        (FORWARD,),
        look=seen,
    )
    assert found[1][2:] == (1, 0) and found[2] == found[3] == (0, 0, 0, 0)


def test_bookmarks_stay_for_the_next_time(remembering):
    """They have a star, lead from one to the next, and know modules as well as tensors and values."""
    first = (("home", "b", "end", "b"), ("home", "down", "down", "b"))
    assert walk("resnet.pt", *first)[-1].count("★") == 3
    names = json.loads(remembering.read_text())["bookmarks"]
    assert [*names.values()] == [["epoch", "log", "state_dict/module."]]
    found = walk("resnet.pt", ("B",), ("B",), ("B",), ("b", "B"), look=place)
    assert found == ["log", "state_dict/module.", "epoch", "log"]
    assert json.loads(remembering.read_text())["bookmarks"] != names


def test_what_is_gone_to_from_the_pane_at_the_right_is_shown_there(remembering):
    """By bookmarks, findings and the way back, also where that pane has all the room; escape leaves it."""

    def seen(app):
        return app.screen.query_one(Detail).border_title.split("/")[-1], place(app)

    marked = ("home", "b", "end", "b", "enter")
    found = walk("resnet.pt", (*marked, "B"), ("end", "enter", "n"), ("end", "enter", BACK, BACK), look=seen)
    assert all(shown == name.split("/")[-1] for shown, name in found) and len({name for _, name in found}) == 3
    assert walk("resnet.pt", ("end", "enter", "z", "B"), look=seen) == [("epoch", "epoch")]
    assert walk("resnet.pt", ("end", "enter", "escape", "up"), look=seen)[0][1] != "log"


def test_files_that_were_opened_are_offered_again(library, remembering, tmp_path, monkeypatch):
    """Below those of the folder, or alone where that has none; what has gone since is not."""
    for name in ("gone.pt", "kept.pt"):
        shutil.copy(library / "resnet.pt", tmp_path / name)
        browse(tmp_path / name)
    (tmp_path / "gone.pt").unlink()
    (tmp_path / "folder").mkdir()
    for name in ("one.pt", "other.pt"):
        shutil.copy(library / "resnet.pt", tmp_path / "folder" / name)
    monkeypatch.chdir(tmp_path / "folder")
    text = browse(".")
    assert "recently opened" in text and "other.pt" in text and "kept.pt" in text and "gone.pt" not in text
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert walk(".", ("enter",), look=lambda app: app.screen.path) == [str(tmp_path / "kept.pt")]


def test_a_history_that_cannot_be_read_is_none(remembering):
    """Neither is one that cannot be written."""
    remembering.parent.mkdir(parents=True)
    remembering.write_text("[3]")
    assert "resnet.pt" in browse("resnet.pt", "b")
    remembering.unlink()
    remembering.mkdir()
    shown, said = browse(
        "resnet.pt", "b", look=lambda app: (text_of(app), [each.message for each in app._notifications])
    )
    assert "resnet.pt" in shown and "★" in shown
    assert said == ["Bookmarks cannot be saved here: these are gone when the browser is closed."]


def test_a_bookmark_that_nobody_wants_kept(monkeypatch):
    """Then nothing is said of it."""
    monkeypatch.setenv("CKPTDOCTOR_HISTORY", "0")
    assert browse("resnet.pt", "b", look=lambda app: list(app._notifications)) == []


def test_a_letter_for_every_line(library, tmp_path):
    """It takes the cursor there; any other key stays; in a line to type in there is another key for it."""
    screens = walk("resnet.pt", ("J",), ("d",), ("J", "escape"), look=lambda app: (text_of(app), app.focused))
    assert "s args" not in screens[0][0] and "Type the letter" in screens[0][0]
    assert "Type the letter" not in screens[1][0] and screens[1][1].cursor == 2
    assert screens[2][1].cursor == 2
    for name in "abcd":  # the third line of the picker: letters are handed out along the home row
        shutil.copy(library / "resnet.pt", tmp_path / f"{name}.pt")
    found = walk(tmp_path, ("ctrl+o",), ("d", "enter"), look=lambda app: app.screen)
    assert isinstance(found[1], BrowserScreen) and found[1].path == str(tmp_path / "c.pt")
    assert not isinstance(found[1], PickerScreen)
