"""A file that is overwritten, or deleted, while it is open."""

from __future__ import annotations

import os
import shutil

import pytest
import torch

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.tui.screens.browser import BrowserScreen
from ckptdoctor.tui.screens.compare import CompareScreen
from ckptdoctor.tui.screens.picker import PickerScreen
from ckptdoctor.tui.widgets.list_view import ListView
from tests.tui import browse, text_of, walk

FILES = {"few.pt": 4, "many.pt": 300, "alike.pt": 4}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Files with few and with many tensors; ``live.pt`` is a copy of the first."""
    monkeypatch.chdir(tmp_path)
    for name, number in FILES.items():
        torch.manual_seed(number)
        torch.save({f"layer{index}.weight": torch.randn(3, 2) for index in range(number)}, name)
    shutil.copy("few.pt", "live.pt")
    shutil.copytree(tmp_path, tmp_path / "folder")
    return tmp_path


def said(app):
    """The messages that came up so far."""
    return [each.message for each in app._notifications]


def after(change, *keys, path="live.pt", before=(), look=lambda app: (app.screen, said(app), text_of(app))):
    """What ``look`` gives after these keys, when ``change`` has been done to the open file."""

    def first(app):
        change()

    looks = iter([first, look])
    return walk(path, before, keys, look=lambda app: next(looks)(app))[1]


@pytest.mark.parametrize("key", ["e", "f"])
@pytest.mark.parametrize("name", ["many.pt", "alike.pt"])
def test_another_file_is_taken_over_as_a_whole(name, key):
    """Both keys that examine show all of the new file, and say so; values are not said to have been read."""

    def look(app):
        return app.screen, said(app), text_of(app), len(app.screen.query_one(ListView).rows), len(app.screen_stack)

    screen, messages, text, rows, depth = after(lambda: shutil.copy(name, "live.pt"), key, look=look)
    assert messages == ["live.pt was replaced since it was opened. These are its new contents."]
    assert rows == len(screen.opened.table) == FILES[name] and depth == 2
    assert f"{FILES[name]} tensors" in text and "Every value was read" not in text
    assert screen.report.checkpoint.identity == screen.opened.checkpoint.identity


def test_a_file_that_is_replaced_while_it_is_read(monkeypatch):
    """What was read of the old one and the new one is not mixed: the new one is shown."""
    from ckptdoctor.values import examine

    real = examine.examine_values

    def meanwhile(*arguments, **options):
        found = real(*arguments, **options)
        shutil.copy("many.pt", "new.pt")
        os.replace("new.pt", "live.pt")
        return found

    monkeypatch.setattr(examine, "examine_values", meanwhile)
    text = browse("live.pt", "e")
    assert "300 tensors" in text and "Every value was read" not in text


def test_the_same_file_is_read_as_before():
    """Nothing is said of a file that nobody has touched."""
    assert after(lambda: None, "e")[1] == []
    assert "Every value was read." in browse("live.pt", "e")


def test_a_file_that_was_deleted():
    """Reading every byte of it says so; what is known of it stays on the screen."""
    screen, messages, text = after(lambda: os.remove("live.pt"), "e")
    assert len(messages) == 1 and messages[0].startswith("live.pt cannot be opened: No such file or directory.")
    assert isinstance(screen, BrowserScreen) and "layer0" in text and "Every value was read" not in text


@pytest.mark.parametrize("contents", [b"", b"<!DOCTYPE html><html></html>"], ids=["empty", "html"])
def test_comparing_with_what_is_no_checkpoint(contents, folder):
    """The browser says why it cannot be compared, and goes back to the files to choose from."""
    (folder / "bad.pt").write_bytes(contents)
    screen, messages = walk(
        "few.pt", ("D", "text:bad", "enter"), ("escape", "escape"), look=lambda app: (app.screen, said(app))
    )[0]
    assert isinstance(screen, PickerScreen) and len(messages) == 1 and "bad.pt" in messages[0]


def test_a_failed_comparison_is_not_on_the_way_forward(folder):
    """There is nothing to go forward to."""
    (folder / "bad.pt").write_bytes(b"")
    assert not isinstance(
        browse("few.pt", "D", "text:bad", "enter", "alt+right", look=lambda app: app.screen), CompareScreen
    )


def test_a_file_that_has_gone_from_the_list():
    """Choosing it says so, and the list stays."""
    screen, messages, _ = after(lambda: os.remove("folder/few.pt"), "text:few", "enter", path="folder")
    assert isinstance(screen, PickerScreen)
    assert messages == ["folder/few.pt cannot be opened: No such file or directory."]


def test_a_root_that_is_not_there():
    """What was not examined is not said to be well."""
    text = walk("few.pt", (), settings=Settings(root="nowhere"))[0]
    assert "✓ No problems found" not in text and "nowhere" in text
