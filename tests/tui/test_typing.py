"""What is typed or pasted right behind the key that asks for it arrives where it belongs."""

from __future__ import annotations

import asyncio
import shutil

import pytest
import torch
from textual.events import Paste
from textual.widgets import Input

from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.screens.confirm import ConfirmScreen
from ckptdoctor.tui.screens.repair import RepairScreen
from ckptdoctor.tui.screens.tensor import TensorScreen
from ckptdoctor.tui.widgets.tensor.grid import ValueGrid
from tests.tui import NORMAL, press, press_at_once, settled


@pytest.fixture(autouse=True)
def folder(library, tmp_path, monkeypatch):
    """A file to repair, and one with a matrix."""
    shutil.copy(library / "resnet.pt", tmp_path)
    torch.save({"matrix": torch.zeros(40, 64)}, tmp_path / "matrix.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(path, *keys, act):
    """What comes of something done once keys have opened a screen."""

    async def run():
        app = BrowserApp(path)
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


def test_an_index_behind_its_key():
    """Digits, comma and enter, before the line to type in is on the screen."""

    async def act(pilot):
        await press_at_once(pilot, "text:i4,17", "enter")
        assert isinstance(pilot.app.screen, TensorScreen)
        return pilot.app.screen.query_one(ValueGrid).index

    assert opened("matrix.pt", "enter", act=act) == (4, 17)


def test_an_answer_behind_its_question():
    """Two enters at once ask and answer: one question, one file."""

    async def act(pilot):
        await press_at_once(pilot, "enter", "enter")
        return len(pilot.app.screen_stack), pilot.app.screen.report.output

    assert opened("resnet.pt", "f", act=act) == (4, "resnet.fixed.pt")
