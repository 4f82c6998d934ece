"""The screen of a tensor with keys and mouse, and when torch comes in."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
import torch

from ckptdoctor.errors import StoppedError
from ckptdoctor.look.inspector import Inspector
from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.screens.tensor import IndexScreen, TensorScreen
from ckptdoctor.tui.widgets.bars import KeyBar
from ckptdoctor.tui.widgets.tensor.distribution import Distribution, ExtremesView
from ckptdoctor.tui.widgets.tensor.grid import ValueGrid
from ckptdoctor.tui.widgets.tensor.heatmap import Heatmap
from ckptdoctor.tui.widgets.tree_view import TreeView
from tests.tui import NARROW, NORMAL, browse, press, press_at_once, settled, text_of, walk

MATRIX = ("enter",)
CONV = ("down", "enter")


def here(app):
    """The element that the cursor is on."""
    return app.screen.query_one(ValueGrid).index


def looks(stages, look, *opening, size=NORMAL):
    """One session: what is seen of a tensor after each of these rows of keys, every one on a screen opened anew."""
    found = []

    async def run():
        app = BrowserApp("values.pt")
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            for number, keys in enumerate(stages):
                await press(pilot, *(("enter",) if number else opening), *keys)  # the cursor of the tree stays there
                found.append(look(app))
                await press(pilot, *["escape"] * (len(app.screen_stack) - 2))

    asyncio.run(run())
    return dict(zip(stages, found, strict=True))


def test_moving():
    """Every key goes where it says."""
    places = [
        ((), (3, 5)),  # the NaN in it
        (("left", "up"), (2, 4)),
        (("4", "enter"), (3, 5)),
        (("4", "down", "down", "enter"), (21, 0)),
        (("home", "g", "j", "l", "right", "down", "h", "k"), (1, 1)),
        (("end", "G"), (39, 63)),
        (("home", "g"), (0, 0)),
        (("pagedown", "pageup"), (0, 0)),
        (("i", "text:4,17", "enter"), (4, 17)),
        (("i", "text:9,9", "escape"), (4, 17)),
        (("home", "g", "l", "r", "j"), (0, 2)),
    ]
    (opening, *stages), expected = zip(*places, strict=True)
    assert walk("values.pt", (*MATRIX, *opening), *stages, look=here) == list(expected)


def test_slices():
    """Other slices, and other dimensions as rows and columns; all views show the same."""
    after, before = "right_square_bracket", "left_square_bracket"
    far, far_before = "right_curly_bracket", "left_curly_bracket"
    titles = [
        (("x",), "[↓, →, 0, 0]"),
        ((after,), "[↓, →, 0, 1]"),
        ((before, before), "[↓, →, 2, 2]"),
        ((after, far), "[↓, →, 1, 0]"),
        ((after, far_before), "[↓, →, 0, 1]"),
        ((before, "c"), "[↓, 0, →, 0]"),
        (("c",), "[↓, 0, 0, →]"),
        (("c",), "[→, 0, 0, ↓]"),  # where the other one is, they change places
        (("r",), "[↓, 0, 0, →]"),
        (("r",), "[0, ↓, 0, →]"),
        (("i", "text:1 2 1 2", "enter"), "[1, ↓, 1, →]"),
    ]

    def seen(app):
        return {str(app.screen.query_one(each).border_title).split(" ", 1)[1] for each in (ValueGrid, Heatmap)}

    (opening, *stages), expected = zip(*titles, strict=True)
    found = walk("values.pt", (*CONV, *opening), *stages, look=seen)
    assert found == [{title} for title in expected]


def test_kernels_of_a_convolution():
    """All that there is room for, page by page; a click leads to the value, and an index to its kernel."""

    async def run():
        app, found = BrowserApp("values.pt"), []
        async with app.run_test(size=(50, 20)) as pilot:
            await settled(pilot)
            for keys in ((*CONV, "2"), ("pagedown",), ("pageup",), ("i", "text:14 0 1 2", "enter")):
                await press(pilot, *keys)
                found.append(str(app.screen.query_one(Heatmap).border_title))
            await press(pilot, "i", "text:0 0 0 0", "enter", "2")
            await pilot.click(Heatmap, offset=(2 + 8 * 4 + 1, 1 + 2))  # a line of the screen is two rows of cells
            await settled(pilot)
            return found, here(app)

    titles, clicked = asyncio.run(run())
    assert titles[:2] == ["kernels [0, 0] … [8, 1]", "kernels [8, 2] … [15, 7]"]
    assert titles[2:] == ["kernels [0, 0] … [8, 1]", "kernels [14, 0] … [15, 7]"]
    assert clicked == (2, 3, 0, 1)


def test_singular_values_on_demand():
    """Those of torch, and how many of them say anything; again the key, and the histogram is back."""
    values = torch.load("values.pt", weights_only=True)["conv"].double().flatten(1)
    found = torch.linalg.svdvals(values)
    share = found / found.sum()

    def seen(app):
        view = app.screen.query_one(Distribution)
        return str(view.border_title), str(view.render())

    shown, again, refused = walk("values.pt", (*CONV, "w"), ("w",), ("escape", "up", "enter", "w"), look=seen)
    assert shown[0] == "singular values · 16 × 72" and f"largest {found[0]:.3g}" in shown[1]
    assert f"effective rank {(-(share * share.log()).sum()).exp():.1f}" in shown[1]
    assert again[0] == "histogram"
    assert refused[1] == "a matrix with NaN or infinity in it has no singular values"


def test_escape_goes_back_to_the_same_line():
    """The tree is as it was."""
    assert browse("values.pt", *CONV, "escape", look=lambda app: app.screen.query_one(TreeView).cursor) == 1


@pytest.mark.parametrize(("size", "many"), [(NARROW, 1), (NORMAL, 4)], ids=str)
def test_views_by_number_and_in_turn(size, many):
    """On a small screen the one with the keys is the only one."""

    def shown(app):
        return app.screen.focused.id, len([each for each in app.screen.query("#views > *") if each.display])

    stages = (("3",), ("tab", "tab"), ("4", "tab", "shift+tab", "shift+tab"))
    assert set(looks(stages, shown, *MATRIX, size=size).values()) == {("histogram", many)}


def test_every_tensor_can_be_looked_at():
    """Numbers alone, no numbers at all, and names that are no names: all views, without an error."""

    async def run():
        app = BrowserApp("values.pt")
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            for _ in range(8):
                await press(pilot, "enter")
                assert isinstance(app.screen, TensorScreen)
                await press_at_once(pilot, "text:cs", "end", "pagedown", "text:4", "enter")
                assert all(line.isprintable() for line in text_of(app).split("\n"))
                await press(pilot, "escape", "down")

    asyncio.run(run())


def test_what_cannot_be_shown_says_why():
    """A meta tensor has no values."""
    for text in walk("values.pt", ["down"] * 6, ("enter",)):
        assert "saved without values" in text


def test_the_footer_has_eight_keys_at_most():
    """More would be clutter."""
    assert browse("values.pt", *CONV, look=lambda app: len(app.screen.query_one(KeyBar).keys)) <= 8


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
                await press(pilot, "s")
        return found

    scales = asyncio.run(run())
    assert scales[0] == scales[3] and len(set(scales)) == 3


def test_holding_a_key_reads_nothing(monkeypatch):
    """Only where the cursor rests values are read, once each; first of what it is on when the file has been opened."""
    looks = []
    look = Inspector.look
    monkeypatch.setattr(
        Inspector, "look", lambda self, tensor, work: looks.append(tensor.key) or look(self, tensor, work)
    )

    async def run():
        app = BrowserApp("values.pt")
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await pilot.pause(0.2)
            await settled(pilot)
            opened = list(looks)
            for _ in range(4):  # as fast as a key that is held, whatever else the machine does
                app.screen.query_one(TreeView).action_move(1)
            await pilot.pause(0.3)
            await settled(pilot)
            return opened

    assert asyncio.run(run()) == ["matrix"]
    assert looks == ["matrix", "number"]


def test_much_is_read_only_when_the_cursor_moves(monkeypatch, tmp_path):
    """Opening a large file reads no values that nobody asked for."""
    torch.save({"large": torch.ones(5 << 20), "small": torch.ones(2)}, tmp_path / "large.pt")
    looks = []
    look = Inspector.look
    monkeypatch.setattr(
        Inspector, "look", lambda self, tensor, work: looks.append(tensor.key) or look(self, tensor, work)
    )

    async def run():
        app = BrowserApp(str(tmp_path / "large.pt"))
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await pilot.pause(0.2)
            await settled(pilot)
            opened = list(looks)
            await press(pilot, "down", "up")
            await pilot.pause(0.2)
            await settled(pilot)
            return opened

    assert asyncio.run(run()) == []
    assert looks[-1] == "large"


def test_a_look_that_is_no_longer_wanted_is_stopped(monkeypatch):
    """Moving on tells the thread to end, and its result is not shown."""
    begun, ended = threading.Event(), threading.Event()

    def slow(self, tensor, work):
        begun.set()
        try:
            while True:
                work.go_on()
                threading.Event().wait(0.01)
        except StoppedError:
            ended.set()

    monkeypatch.setattr(Inspector, "look", slow)

    async def run():
        app = BrowserApp("values.pt")
        async with app.run_test(size=NORMAL) as pilot:
            for _ in range(500):
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


def test_numpy_comes_with_the_first_look():
    """Neither the first drawing nor the rules wait for it."""
    code = (
        "import asyncio, sys\n"
        "from ckptdoctor.tui.app import BrowserApp\n"
        "from ckptdoctor.tui.widgets.detail import Detail\n"
        "read_at_once = Detail.read_at_once\n"
        "def examined(self):\n"
        "    print('numpy' in sys.modules)\n"
        "    read_at_once(self)\n"
        "Detail.read_at_once = examined\n"
        "async def run():\n"
        "    app = BrowserApp('values.pt')\n"
        "    async with app.run_test(size=(120, 40)) as pilot:\n"
        "        for _ in range(600):\n"
        "            if 'numpy' not in sys.modules:\n"
        "                await pilot.pause(0.1)\n"
        "        await app.workers.wait_for_complete()\n"
        "        print('numpy' in sys.modules)\n"
        "asyncio.run(run())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_no_elements_is_no_waiting():
    """A tensor without elements says so in every view, and nothing is said to be read."""
    text = browse("values.pt", *["down"] * 5, "enter")
    assert text.count("no elements") == 3 and "reading" not in text
