"""Keys typed or pasted right behind the key that asks for them arrive where they belong."""

from __future__ import annotations

import asyncio
import shutil

import pytest
import torch
from textual.events import Paste
from textual.widgets import Input

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.screens.questions import ConfirmScreen
from ckptdoctor.tui.screens.repair import RepairScreen
from ckptdoctor.tui.screens.tensor import TensorScreen
from ckptdoctor.tui.widgets.list_view import ListView
from ckptdoctor.tui.widgets.tensor.grid import ValueGrid
from ckptdoctor.tui.widgets.tree_view import TreeView
from tests.tui import NORMAL, press, press_at_once, settled
from tests.tui.pairs import save_pair


@pytest.fixture(autouse=True)
def folder(library, tmp_path, monkeypatch):
    """A file to repair, and one with a matrix."""
    shutil.copy(library / "resnet.pt", tmp_path)
    torch.save({"matrix": torch.zeros(40, 64)}, tmp_path / "matrix.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(path, *keys, act, **options):
    """What comes of something done once keys have opened a screen."""

    async def run():
        app = BrowserApp(path, **options)
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await press(pilot, *keys)
            return await act(pilot)

    return asyncio.run(run())


def test_a_name_behind_its_key():
    """Letters that are keys elsewhere are letters of the name, and enter goes on to the question."""

    async def act(pilot):
        await press_at_once(pilot, "text:n", "ctrl+u", "text:nanny.pt", "enter")
        assert isinstance(pilot.app.screen, ConfirmScreen)
        return pilot.app.screen.report.output

    assert opened("resnet.pt", "f", act=act) == "nanny.pt"


def test_a_choice_in_front_of_a_name():
    """Keys that come before are dealt with before: the last repair is chosen, then the name is typed."""

    async def act(pilot):
        await press_at_once(pilot, "end", "space", "text:n", "ctrl+u", "text:all.pt", "enter")
        report = pilot.app.screen.report
        return report.output, "W301" in [step.label for step in report.steps]

    assert opened("resnet.pt", "f", act=act) == ("all.pt", True)


def test_a_name_that_is_pasted_behind_its_key():
    """It goes on behind what is there."""

    async def act(pilot):
        pilot.app.screen.query_one(Input).value = ""
        pilot.app.simulate_key("n")
        pilot.app.post_message(Paste("from/the/clipboard.pt"))
        await settled(pilot)
        return pilot.app.screen.query_one(Input).value

    assert opened("resnet.pt", "f", act=act) == "from/the/clipboard.pt"


def test_a_name_that_is_typed_before_the_plan_is_there():
    """The usual name, which comes with the plan, does not take its place."""

    async def act(pilot):
        screen = pilot.app.screen
        assert isinstance(screen, RepairScreen)
        usual, screen._sight = screen._sight, None
        screen._given = ""
        screen.query_one(Input).value = ""
        await pilot.pause()
        await pilot.press("n")
        name = screen.query_one(Input)
        with screen.prevent(Input.Changed):  # what has been typed, and not yet been told
            name.value = "mine.pt"
        screen._show(usual)
        return name.value

    assert opened("resnet.pt", "f", act=act) == "mine.pt"


def test_a_field_that_is_emptied_before_the_plan_is_there():
    """What comes with the plan stands behind the field, and what is typed then is the name."""

    async def act(pilot):
        screen = pilot.app.screen
        usual, screen._sight = screen._sight, None
        screen._given = screen.query_one(Input).value = ""
        await pilot.pause()
        await pilot.press("n", "ctrl+u")
        screen._show(usual)
        name = screen.query_one(Input)
        seen = name.value, name.placeholder
        await press(pilot, "text:mine.pt", "enter")
        return *seen, pilot.app.screen.report.output

    assert opened("resnet.pt", "f", act=act) == ("", "resnet.fixed.pt", "mine.pt")


def test_an_index_behind_its_key():
    """Digits, comma and enter, before the line to type in is on the screen."""

    async def act(pilot):
        await press_at_once(pilot, "text:i4,17", "enter")
        assert isinstance(pilot.app.screen, TensorScreen)
        return pilot.app.screen.query_one(ValueGrid).index

    assert opened("matrix.pt", "enter", act=act) == (4, 17)


def test_an_index_behind_a_move():
    """The cursor moves first, and the tensor is open before it moves: each key has the one before it behind it."""

    async def act(pilot):
        await press_at_once(pilot, "enter", "down", "right", "down", "i", "escape")
        moved = pilot.app.screen.query_one(ValueGrid).index
        await press_at_once(pilot, "right_square_bracket", "text:i-1,2", "enter", "down", "left", "up")
        return moved, pilot.app.screen.query_one(ValueGrid).index

    assert opened("matrix.pt", act=act) == ((2, 1), (38, 1))


def test_a_choice_behind_the_key_that_offers_repairs():
    """Offers are worked out in a thread: what is typed meanwhile is for them."""

    async def act(pilot):
        await press_at_once(pilot, "f", "end", "space", "text:n", "ctrl+u", "text:mine.pt", "enter")
        report = pilot.app.screen.report
        return report.output, "W301" in [step.label for step in report.steps]

    assert opened("resnet.pt", act=act) == ("mine.pt", True)


def test_escape_behind_the_key_that_offers_repairs():
    """It leaves the repairs, and what comes behind it is for the screen below them."""

    async def act(pilot):
        before = pilot.app.screen.query_one(TreeView).cursor
        await press_at_once(pilot, "f", "escape", "down")
        return pilot.app.screen.query_one(TreeView).cursor - before

    assert opened("resnet.pt", act=act) == 1


def test_keys_of_a_screen_that_another_one_opens(library):
    """Two screens one after the other, each by a key of the one before."""
    save_pair(library)

    async def act(pilot):
        await press_at_once(pilot, "c")
        await press_at_once(pilot, "f", "text:n", "ctrl+u", "text:x.pt")
        return pilot.app.screen.query_one(Input).value

    whole, exact = str(library / "whole.pt"), str(library / "exact.pt")
    assert opened(whole, act=act, settings=Settings(like=exact)) == "x.pt"


@pytest.mark.parametrize("key", ["colon", "ctrl+p"])
def test_a_command_behind_its_key(key):
    """Its letters are typed, and enter waits until it is found."""

    async def act(pilot):
        await press_at_once(pilot, key, "text:list of all", "enter")
        return pilot.app.screen.query_one(ListView).display

    assert opened("resnet.pt", act=act)


def test_keys_behind_a_command():
    """They are for what the command has opened."""

    async def act(pilot):
        await press_at_once(pilot, "colon", "text:choose repairs", "enter", "text:n", "ctrl+u", "text:x.pt")
        return pilot.app.screen.query_one(Input).value

    assert opened("resnet.pt", act=act) == "x.pt"


def test_an_answer_behind_its_question():
    """Two enters at once ask and answer: one question, one file."""

    async def act(pilot):
        await press_at_once(pilot, "enter", "enter")
        return len(pilot.app.screen_stack), pilot.app.screen.report.output

    assert opened("resnet.pt", "f", act=act) == (4, "resnet.fixed.pt")
