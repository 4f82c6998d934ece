"""A file that cannot be read: what of it is whole, and saving that."""

from __future__ import annotations

import asyncio
import os
import re
import shutil

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.checkpoint.progress import phase
from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.models.salvaged import output_for
from ckptdoctor.tui.screens import damaged
from ckptdoctor.tui.screens.browser import BrowserScreen
from ckptdoctor.tui.screens.damaged import ConfirmSalvage, DamagedScreen, SalvageView
from tests.tui import NARROW, NORMAL, browse, screen, settled, text_of, walk


@pytest.fixture
def cut(library, tmp_path, monkeypatch):
    """A copy of the broken file in a folder of its own."""
    shutil.copy(library / "cut.pt", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_the_question(size, cut, monkeypatch):
    """It names the new file, what will be in it and what will not."""
    monkeypatch.setattr(os.path, "abspath", lambda path: f"/models/{path}")
    screen("salvage", "cut.pt", "s", size=size)


def test_what_is_lost_is_marked():
    """The marks say it without colour."""
    text = browse("cut.pt")
    assert "7 of 15 tensors intact · 334 kB · 1 in part · 7 lost" in text
    assert "◐ state_dict/module.layer2.0.conv1.weight" in text and "72.2 % is there" in text
    assert "● state_dict/module.fc.bias" in text


def test_an_interrupted_file_is_called_so(cut):
    """With the command that restores it; nothing of it can be saved, for it may be half old and half new."""
    (cut / ".cut.pt.ckptdoctor-hot").write_bytes(b"a journal")
    text = browse("cut.pt", "s")
    assert "F018" in text
    assert "ckptdoctor undo cut.pt" in text
    assert sorted(os.listdir(cut)) == [".cut.pt.ckptdoctor-hot", "cut.pt"]


def test_nothing_is_written_before_the_answer(cut):
    """Neither by looking, nor by going back."""
    browse("cut.pt", "s", "escape")
    assert os.listdir(cut) == ["cut.pt"]


def test_saved_and_opened(cut):
    """Enter writes it and says what was proven, enter again opens it."""

    def look(app):
        if isinstance(app.screen, BrowserScreen):
            return app.screen.path, len(app.screen.opened.table)
        return text_of(app), sorted(os.listdir(cut))

    (text, files), opened = walk("cut.pt", ("s", "enter"), ("enter",), look=look)
    assert "╭─ saved ─" in text and "cut.salvaged.pt" in text and "✓ everything in it equals the original" in text
    assert files == ["cut.pt", "cut.salvaged.pt"]
    assert opened == ("cut.salvaged.pt", 7)


def test_after_it_was_saved_there_is_another_name(cut):
    """Back on the screen, s asks anew, for a file that is not there yet."""

    def output(app):
        assert isinstance(app.screen, ConfirmSalvage)
        return app.screen.report.output

    assert browse("cut.pt", "s", "enter", "escape", "s", "s", look=output) == "cut.salvaged-2.pt"


def test_a_file_of_which_nothing_is_whole(cut):
    """Why is said, and no table is shown."""
    whole = (cut / "cut.pt").read_bytes()
    (cut / "cut.pt").write_bytes(whole[:9000])

    def seen(app):
        return app.screen.query_one(SalvageView).display, text_of(app)

    display, text = browse("cut.pt", look=seen)
    assert not display
    assert "Nothing can be saved: " in text


def test_an_empty_file_offers_nothing():
    """There is no key for it."""
    assert "salvage" not in browse("empty.pt").splitlines()[-1]


def test_a_large_file_is_read_when_that_is_asked_for(monkeypatch):
    """Opening reads headers only."""
    monkeypatch.setattr(damaged, "_AT_ONCE", 1000)

    def look(app):
        view = app.screen.query_one(SalvageView)
        return view.display, view.count()

    assert walk("cut.pt", (), ("s",), look=look) == [(False, 0), (True, 15)]


def test_leaving_ends_the_reading(monkeypatch):
    """Whoever leaves is not kept waiting, and the thread stops at the next block."""
    told = []

    def plan(path, output):
        with phase("storages", 2) as work:
            while True:
                told.append(1)
                work.reach(1)

    monkeypatch.setattr(damaged, "plan_salvage", plan)

    async def run():
        app = BrowserApp("cut.pt")
        async with app.run_test(size=NORMAL) as pilot:
            while not (isinstance(app.screen, DamagedScreen) and told):
                await pilot.pause(0.05)
            await pilot.pause(0.3)
            assert app.screen.query_one("#salvage").border_subtitle == "reading: 50 %"
            await pilot.press("q")
        seen = len(told)
        await asyncio.sleep(0.05)
        return len(told) - seen

    assert asyncio.run(run()) <= 1


def test_the_new_name_is_free(tmp_path):
    """What salvage would choose, or with a number."""
    path = str(tmp_path / "a.pt")
    assert output_for(path) == str(tmp_path / "a.salvaged.pt")
    (tmp_path / "a.salvaged.pt").write_bytes(b"")
    os.symlink("nowhere", tmp_path / "a.salvaged-2.pt")
    assert output_for(path) == str(tmp_path / "a.salvaged-3.pt")


def test_the_command_that_saves(cut):
    """y gives it; with the name of the file where that is not the usual one."""
    assert browse("cut.pt", look=lambda app: app.screen.command()) == "ckptdoctor salvage cut.pt"
    (cut / "cut.salvaged.pt").write_bytes(b"")
    assert browse("cut.pt", look=lambda app: app.screen.command()) == "ckptdoctor salvage cut.pt -o cut.salvaged-2.pt"


def test_what_cannot_be_saved_has_no_key_for_it(tmp_path):
    """The footer offers nothing that would be refused."""
    page = tmp_path / "page.pt"
    page.write_text("<!DOCTYPE html><html><title>404</title></html>")
    text = browse(page)
    assert "Nothing can be saved" in text
    assert "salvage" not in text.splitlines()[-1]


def test_why_nothing_can_be_saved_stays_at_another_size(tmp_path):
    """Lines are broken elsewhere then."""
    page = tmp_path / "page.pt"
    page.write_text("<!DOCTYPE html><html><title>404</title></html>")

    async def run():
        app = BrowserApp(str(page))
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(pilot)
            await pilot.resize_terminal(90, 30)
            await settled(pilot)
            return text_of(app)

    assert "Nothing can be saved" in asyncio.run(run())


def test_damage_is_a_map_of_bytes():
    """A picture of what is there, and above the tensors which of them are lost."""
    text = browse("cut.pt")
    assert "[██████" in text and "░]" in text
    assert " MB intact · lost: " in text


def test_the_list_counts_layers_and_the_map_has_the_bytes(tmp_path, monkeypatch):
    """Where names are in the order of letters, the lost end of the file is the end of the map, not of the list."""
    monkeypatch.chdir(tmp_path)
    weights = {f"h.{layer}.w": torch.ones(64, 64) for layer in range(12)}
    save_file(weights, "whole.safetensors")
    whole = (tmp_path / "whole.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    text = browse("cut.safetensors", "shift+tab", "s")
    (line,) = [each for each in text.splitlines() if "█" in each]
    assert re.search(r"\[█+▒*░+\]", line), line
    assert re.findall(r"h\.(\d+)\.w  ", text) == [str(layer) for layer in range(12)]


@pytest.mark.parametrize("key", ["less_than_sign", "escape"])
def test_back_from_what_was_saved(key, cut):
    """It leads to the damaged file, of which another copy can be saved."""

    def look(app):
        return type(app.screen), getattr(app.screen, "path", None)

    found = walk("cut.pt", ("s", "enter", "enter"), (key,), ("s", "s"), look=look)
    assert found[0] == (BrowserScreen, "cut.salvaged.pt") and found[1] == (DamagedScreen, "cut.pt")
    assert found[2][0] is ConfirmSalvage
