"""A folder of several checkpoints: which is it to be, and what to compare with."""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest

from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.models.choices import age
from ckptdoctor.tui.screens.browser import BrowserScreen
from ckptdoctor.tui.screens.compare import CompareScreen
from ckptdoctor.tui.screens.picker import PickerScreen, PickerView
from ckptdoctor.tui.widgets.findings import FindingsView
from tests.tui import NARROW, NORMAL, browse, press, screen, settled, text_of, walk


@pytest.fixture
def several(library, tmp_path, monkeypatch):
    """Three files in a folder; the tenth epoch comes behind the second."""
    for name, source in (
        ("epoch10.pt", "resnet.pt"),
        ("epoch2.pt", "resnet.pt"),
        ("net.safetensors", "plain.safetensors"),
    ):
        shutil.copy(library / source, tmp_path / name)
        os.utime(tmp_path / name, (0, 0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ckptdoctor.tui.screens.picker.time", lambda: 3 * 86_400.0)


def where(app):
    """The kind of screen, and its file."""
    return type(app.screen), getattr(app.screen, "path", None)


def test_a_folder_of_several_is_a_choice(several):
    """Name, size, age and what checking found; numbers in their order."""
    screen("picker", ".")


def test_typing_narrows_down_and_enter_opens(several):
    """Escape leads back to the choice, and then shows all of it again."""
    stages = (("text:net", "enter"), ("escape",), ("escape", "down", "enter"))
    assert walk(".", *stages, look=where) == [
        (BrowserScreen, "net.safetensors"),
        (PickerScreen, None),
        (BrowserScreen, "epoch10.pt"),
    ]


def test_compare_from_inside(several):
    """D chooses the other file; escape leads back to the choice, and again to the contents."""
    stages = (("D", "text:10", "enter"), ("escape",), ("escape", "escape"))
    found = walk("epoch2.pt", *stages, look=lambda app: (where(app), getattr(app.screen, "other", None)))
    assert found == [
        ((CompareScreen, "epoch2.pt"), "epoch10.pt"),
        ((PickerScreen, None), None),
        ((BrowserScreen, "epoch2.pt"), None),
    ]


def test_the_only_checkpoint_of_a_folder_is_opened(tmp_path, library):
    """There is nothing to choose."""
    shutil.copy(library / "resnet.pt", tmp_path)
    assert browse(tmp_path, look=where) == (BrowserScreen, str(tmp_path / "resnet.pt"))


def test_a_folder_without_any_ends_the_program(tmp_path):
    """One line and status 2."""
    (tmp_path / "notes.txt").write_text("nothing")
    assert browse(tmp_path, look=lambda app: app.return_code) == 2


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(5, "just now"), (300, "5 min ago"), (7300, "2 h ago"), (90_000, "1 day ago"), (-5, "just now")],
)
def test_age(seconds, said):
    """In the largest unit."""
    assert age(seconds) == said


def test_z_gives_a_pane_all_the_room():
    """And shares it again."""

    def shown(app):
        return [app.screen.query_one(name).display for name in ("#findings", "#contents", "#detail")]

    assert walk("resnet.pt", ("z",), ("z",), look=shown) == [[False, True, False], [True] * 3]


@pytest.mark.parametrize("keys", [("tab",), ("shift+tab",)], ids=str)
def test_a_pane_alone_is_as_high_as_the_screen(keys):
    """Details and findings, too, which have few lines otherwise."""

    def height(app):
        return app.focused.outer_size.height

    before, after = walk("resnet.pt", keys, ("z",), look=height, size=NARROW)
    assert before < 8 and after == NARROW[1] - 2  # but for the title and the keys


def test_long_names_come_before_ages(several):
    """Of shards whose names differ at the end all of the name is there."""
    name = "model_of_a_long_run_epoch=00007.pt"
    shutil.copy("epoch2.pt", name)
    text = browse(".", size=NARROW)
    assert name in text and "ago" not in text and "just now" not in text


def test_resizing_keeps_the_place():
    """The cursor is where it was, and on the screen."""

    async def run():
        app = BrowserApp("resnet.pt")
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await press(pilot, "asterisk", "end")
            before = app.screen.query_one("TreeView").cursor
            await pilot.resize_terminal(80, 20)
            await settled(pilot)
            tree = app.screen.query_one("TreeView")
            seen = tree.cursor - tree.scroll_offset.y
            return before == tree.cursor, 0 <= seen < tree.scrollable_content_region.height, text_of(app)

    same, seen, _ = asyncio.run(run())
    assert same and seen


def test_two_clicks_on_a_checkpoint_open_it(several):
    """As enter does."""

    async def run():
        app = BrowserApp(".")
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await pilot.click("#picker", offset=(4, 1), times=2)
            await settled(pilot)
            return where(app), len(app.screen.query(FindingsView))

    assert asyncio.run(run()) == ((BrowserScreen, "epoch2.pt"), 1)


def test_a_file_is_not_compared_with_itself(several):
    """It is not among the files to choose from, and alone in a folder there is nothing to choose."""
    shown = browse("epoch2.pt", "D")
    assert "epoch10.pt" in shown and "compare epoch2.pt with" in shown and "2 checkpoints" in shown
    os.mkdir("one")
    shutil.copy("epoch2.pt", "one/only.pt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ckptdoctor.tui.screens.picker.opened_before", lambda folder: [])
        said = browse("one/only.pt", "D", look=lambda app: [each.message for each in app._notifications])
    assert said == ["one has no other checkpoint to compare with."]


def test_what_was_changed_meanwhile_is_looked_at_again(several, library):
    """When somebody comes back: size and verdict are those of the file that is there, and the cursor stays."""

    def look(app):
        lines = [line for line in text_of(app).split("\n") if "epoch2.pt" in line]
        shutil.copy(library / "cut.pt", "epoch2.pt")
        return lines, app.screen.query_one(PickerView).cursor if isinstance(app.screen, PickerScreen) else None

    (before, _), _, (after, cursor) = walk(".", ("down", "up"), ("enter",), ("escape",), look=look)
    assert "cannot be read" not in before[0] and "1 error" in after[0] and before != after and cursor == 0
