"""The screen of a tensor with keys and mouse, and when torch comes in."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from textual.widgets._footer import FooterKey

from ckptdoctor.engine.peek import Peek
from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.screens.index import IndexScreen
from ckptdoctor.tui.screens.tensor import TensorScreen
from ckptdoctor.tui.widgets.tensor.distribution import Distribution
from ckptdoctor.tui.widgets.tensor.extremes import ExtremesView
from ckptdoctor.tui.widgets.tensor.grid import ValueGrid
from ckptdoctor.tui.widgets.tensor.heatmap import Heatmap
from ckptdoctor.tui.widgets.tree_view import TreeView
from tests.tui import NARROW, NORMAL, browse, press, settled, text_of

MATRIX = ("enter",)
CONV = ("down", "enter")


def here(app):
    """The element that the cursor is on."""
    return app.screen.query_one(ValueGrid).index


@pytest.mark.parametrize(
    ("keys", "index"),
    [
        ((), (0, 0)),
        (("j", "l", "right", "down", "h", "k"), (1, 1)),
        (("end", "G"), (39, 63)),
        (("end", "G", "home", "g"), (0, 0)),
        (("pagedown", "pageup"), (0, 0)),
        (("left", "up"), (0, 0)),
        (("i", "4", "comma", "1", "7", "enter"), (4, 17)),
        (("i", "4", "comma", "1", "7", "escape"), (0, 0)),
        (("4", "enter"), (3, 5)),
        (("4", "down", "down", "enter"), (21, 0)),
        (("l", "r", "j"), (0, 2)),
    ],
    ids=str,
)
def test_moving(keys, index):
    """Every key goes where it says."""
    assert browse("values.pt", *MATRIX, *keys, look=here) == index


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ((), "[↓, →, 0, 0]"),
        (("]",), "[↓, →, 0, 1]"),
        (("[",), "[↓, →, 2, 2]"),
        (("}",), "[↓, →, 1, 0]"),
        (("]", "{"), "[↓, →, 2, 1]"),
        (("c",), "[↓, 0, →, 0]"),
        (("r", "c"), "[↓, →, 0, 0]"),
        (("r", "r"), "[→, 0, ↓, 0]"),
        (("i", "1", "space", "2", "space", "1", "space", "2", "enter"), "[↓, →, 1, 2]"),
    ],
    ids=str,
)
def test_slices(keys, said):
    """Other slices, and other dimensions as rows and columns; all views show the same."""
    names = {"]": "right_square_bracket", "[": "left_square_bracket", "}": "right_curly_bracket"}
    names["{"] = "left_curly_bracket"

    def titles(app):
        return {str(app.screen.query_one(each).border_title).split(" ", 1)[1] for each in (ValueGrid, Heatmap)}

    assert browse("values.pt", *CONV, *[names.get(each, each) for each in keys], look=titles) == {said}


def test_escape_goes_back_to_the_same_line():
    """The tree is as it was."""
    assert browse("values.pt", *CONV, "escape", look=lambda app: app.screen.query_one(TreeView).cursor) == 1


@pytest.mark.parametrize("keys", [("3",), ("tab", "tab"), ("4", "tab", "shift+tab", "shift+tab")], ids=str)
@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_views_by_number_and_in_turn(keys, size):
    """On a small screen the one with the keys is the only one."""

    def shown(app):
        return app.screen.focused.id, len([each for each in app.screen.query("#views > *") if each.display])

    focused, many = browse("values.pt", *MATRIX, *keys, size=size, look=shown)
    order = ["values", "heatmap", "histogram", "extremes"]
    wanted = {"3": "histogram", "tab": order[2], "4": order[2]}[keys[0]]
    assert focused == wanted
    assert many == (1 if size == NARROW else 4)


def test_every_tensor_can_be_looked_at():
    """Numbers alone, no numbers at all, and names that are no names: all views, without an error."""

    async def run():
        app = BrowserApp("values.pt")
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            for _ in range(8):
                await pilot.press("enter")
                await settled(pilot)
                assert isinstance(app.screen, TensorScreen)
                await pilot.press("c", "s", "end", "pagedown", "4", "enter")
                assert all(line.isprintable() for line in text_of(app).split("\n"))
                await pilot.press("escape", "down")

    asyncio.run(run())


def test_what_cannot_be_shown_says_why():
    """A meta tensor has no values."""
    assert "saved without values" in browse("values.pt", *["down"] * 6, "enter")
    assert "saved without values" in browse("values.pt", *["down"] * 6, "text:")


def test_the_footer_has_eight_keys_at_most():
    """More would be clutter."""
    assert browse("values.pt", *CONV, look=lambda app: len(app.screen.query(FooterKey))) <= 8


def test_every_key_has_an_id_and_a_tooltip():
    """Keys can be given to other actions by id, and the help says what they do."""
    for owner in (TensorScreen, IndexScreen, ValueGrid, Heatmap, ExtremesView):
        own = owner.__dict__.get("BINDINGS", [])
        assert all(binding.id and binding.tooltip for binding in own), owner
        assert len({binding.id for binding in own}) == len(own), owner


def test_a_click_on_the_heatmap_goes_there():
    """The cursor of the grid is on a value of the cell; the wheel scrolls the grid."""

    async def run():
        app = BrowserApp("values.pt")
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await press(pilot, *MATRIX)
            await pilot.click(Heatmap, offset=(16, 4))
            await settled(pilot)
            clicked = here(app)
            await pilot.click(ValueGrid, offset=(25, 4))
            await settled(pilot)
            return clicked, here(app)

    clicked, again = asyncio.run(run())
    assert clicked[0] > 0 and clicked[1] > 7
    assert again != clicked


def test_scales_go_round():
    """Three of them."""

    async def run():
        app = BrowserApp("values.pt")
        found = []
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await press(pilot, *MATRIX)
            for _ in range(4):
                found.append(app.screen.query_one(Distribution).scale)
                await pilot.press("s")
        return found

    scales = asyncio.run(run())
    assert scales[0] == scales[3] and len(set(scales)) == 3


def test_holding_a_key_reads_nothing(monkeypatch):
    """Only where the cursor rests values are read, once each, and what was begun for another is dropped."""
    looks = []
    look = Peek.look
    monkeypatch.setattr(Peek, "look", lambda self, tensor, going: looks.append(tensor.key) or look(self, tensor, going))

    async def run():
        app = BrowserApp("values.pt")
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await pilot.pause(0.2)
            opened = list(looks)
            for _ in range(4):  # as fast as a key that is held, whatever else the machine does
                app.screen.query_one(TreeView).action_move(1)
            await pilot.pause(0.3)
            await settled(pilot)
            return opened

    assert asyncio.run(run()) == []
    assert looks[-1] == "number" and len(looks) == 1


def test_a_look_that_is_no_longer_wanted_is_stopped(monkeypatch):
    """Moving on tells the thread to end, and its result is not shown."""
    begun, ended = threading.Event(), threading.Event()

    def slow(self, tensor, going):
        begun.set()
        while going():
            threading.Event().wait(0.01)
        ended.set()

    monkeypatch.setattr(Peek, "look", slow)

    async def run():
        app = BrowserApp("values.pt")
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await pilot.press("down")
            for _ in range(100):
                await pilot.pause(0.02)
                if begun.is_set():
                    break
            await pilot.press("end")
            for _ in range(100):
                await pilot.pause(0.02)
                if ended.is_set():
                    return True
        return False

    assert asyncio.run(run())


def test_torch_comes_with_the_first_look():
    """Opening a file and holding a key imports no torch; resting on a tensor does."""
    code = (
        "import asyncio, sys\n"
        "from ckptdoctor.tui.app import BrowserApp\n"
        "async def run():\n"
        "    app = BrowserApp('values.pt')\n"
        "    async with app.run_test(size=(120, 40)) as pilot:\n"
        "        await app.workers.wait_for_complete()\n"
        "        await pilot.pause(0.3)\n"
        "        for _ in range(20):\n"
        "            app.screen.query_one('#tree').action_move(1)\n"
        "        await pilot.pause(0.3)\n"
        "        print('torch' in sys.modules)\n"
        "        await pilot.press('up')\n"
        "        await pilot.pause(0.3)\n"
        "        await app.workers.wait_for_complete()\n"
        "        print('torch' in sys.modules)\n"
        "asyncio.run(run())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_no_elements_is_no_waiting():
    """A tensor without elements says so in every view, and nothing is said to be read."""
    text = browse("values.pt", *["down"] * 5, "enter")
    assert text.count("no elements") == 3 and "reading" not in text
