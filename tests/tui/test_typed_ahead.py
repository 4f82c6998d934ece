"""Keys that are typed before there is anything to see wait for it; those that leave do not."""

from __future__ import annotations

import asyncio
import threading

import pytest
from textual.widgets import Input

from ckptdoctor.diagnose.events import Finished
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import diagnose
from ckptdoctor.fit.fit import fit_to
from ckptdoctor.tui import workers
from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.screens import fit
from ckptdoctor.tui.screens.browser import BrowserScreen
from ckptdoctor.tui.screens.fit import FitScreen
from ckptdoctor.tui.screens.repair import RepairScreen
from ckptdoctor.tui.widgets.list_view import ListView
from ckptdoctor.tui.widgets.tree_view import TreeView
from tests.tui import NORMAL, post, settled
from tests.tui.pairs import save_pair

PATIENCE = 60


@pytest.fixture
def gates(monkeypatch):
    """Reading begins, rules end and a target is compared with only when the gate of that name is opened."""
    made = {name: threading.Event() for name in ("read", "end", "fit")}

    def slowly(*arguments):
        made["read"].wait(PATIENCE)
        for event in diagnose(*arguments):
            if isinstance(event, Finished):
                made["end"].wait(PATIENCE)
            yield event

    def fitted(*arguments):
        made["fit"].wait(PATIENCE)
        return fit_to(*arguments)

    monkeypatch.setattr(workers, "diagnose", slowly)
    monkeypatch.setattr(fit, "fit_to", fitted)
    yield made
    for gate in made.values():
        gate.set()


def ahead(path, gates, *keys, look, opened=("read", "end", "fit"), closed=(), settings=None):
    """Open the gates ``opened``; type the keys; open those that are ``closed`` until then; look."""

    async def run():
        app = BrowserApp(str(path), settings)
        async with app.run_test(size=NORMAL) as pilot:
            for name in set(opened) - set(closed):
                gates[name].set()
            post(pilot, *keys)
            while not app._message_queue.empty():
                await asyncio.sleep(0)
            if app._exit:
                return look(app)
            for name in closed:
                gates[name].set()
            await settled(pilot)
            return look(app)

    return asyncio.run(run())


@pytest.mark.parametrize("keys", [("down", "down"), ("j", "j"), ("end", "home", "down", "down")])
def test_moves_before_the_contents_are_there(library, gates, keys):
    """The cursor goes where they lead, once there are lines."""
    look = {"look": lambda app: app.screen.query_one(TreeView).cursor, "closed": ("read", "end")}
    assert ahead(library / "resnet.pt", gates, *keys, **look) == 2


def test_a_filter_before_the_contents_are_there(library, gates):
    """Every letter of it, also those that are keys elsewhere, narrows what is then shown."""

    def look(app):
        return app.screen.query_one(Input).value, app.screen.query_one(TreeView).count()

    typed = ahead(library / "resnet.pt", gates, "slash", "text:fc.q", look=look, closed=("read", "end"))
    assert typed[0] == "fc.q" and typed[1] == 0


def test_another_view_before_the_contents_are_there(library, gates):
    """The list, and the third tensor of it."""

    def look(app):
        return app.screen.query_one(ListView).display, app.screen.query_one(ListView).cursor

    keys = ("t", "down", "down")
    assert ahead(library / "resnet.pt", gates, *keys, look=look, closed=("read", "end")) == (True, 2)


@pytest.mark.parametrize("closed", [("read", "end"), ("end",)], ids=["before it is read", "while rules run"])
def test_repairs_wait_for_all_rules(library, gates, closed):
    """It is not said that there is nothing to repair before every rule was asked."""

    def look(app):
        return type(app.screen), len(app._notifications)

    assert ahead(library / "resnet.pt", gates, "f", look=look, closed=closed) == (RepairScreen, 0)


@pytest.mark.parametrize(
    ("keys", "closed"),
    [
        (("q",), ("read", "end")),
        (("ctrl+q",), ("read", "end")),
        (("down", "slash", "text:fc", "ctrl+q"), ("read", "end")),
        (("f", "ctrl+q"), ("read", "end")),
    ],
)
def test_leaving_waits_for_nothing(library, gates, keys, closed):
    """The program ends although nothing was read yet, whatever was typed before."""
    assert ahead(library / "resnet.pt", gates, *keys, look=lambda app: app._exit, closed=closed)


def test_a_letter_of_what_is_typed_ahead_does_not_leave(library, gates):
    """A q behind a slash is a letter of the filter."""

    def look(app):
        return app._exit, app.screen.query_one(Input).value

    assert ahead(library / "resnet.pt", gates, "slash", "q", look=look, closed=("read", "end")) == (False, "q")


@pytest.fixture
def pair(library):
    """A file, and settings that name one that it does not fit as it is."""
    save_pair(library)
    return library / "whole.pt", Settings(like=str(library / "exact.pt"))


def opens_fit(pair, gates, *keys, look):
    """Press c, and then the keys while the target is still being looked at."""
    path, settings = pair

    async def run():
        app = BrowserApp(str(path), settings)
        gates["read"].set()
        gates["end"].set()
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            post(pilot, "c")
            while not isinstance(app.screen, FitScreen):
                await asyncio.sleep(0)
            post(pilot, *keys)
            while not app._message_queue.empty():
                await asyncio.sleep(0)
            early = type(app.screen)
            gates["fit"].set()
            await settled(pilot)
            return early, look(app)

    return asyncio.run(run())


def test_repair_before_the_fit_is_known(pair, gates):
    """What fits is planned once it is known, and not before."""
    assert opens_fit(pair, gates, "f", look=lambda app: type(app.screen)) == (FitScreen, RepairScreen)


@pytest.mark.parametrize("keys", [("escape",), ("f", "escape"), ("down", "f", "escape")])
def test_escape_before_the_fit_is_known(pair, gates, keys):
    """It leads back at once, and takes back what waited."""
    assert opens_fit(pair, gates, *keys, look=lambda app: type(app.screen))[1] is BrowserScreen


def test_a_fit_that_fails_keeps_no_key_waiting(pair, gates, monkeypatch):
    """The reason is told, and the next key is heard."""

    def fails(*arguments):
        gates["fit"].wait(PATIENCE)
        raise LookupError("on purpose")

    monkeypatch.setattr(fit, "fit_to", fails)

    def look(app):
        return len(app._typed), [each.message for each in app._notifications]

    waiting, told = opens_fit(pair, gates, "f", look=look)[1]
    assert waiting == 0 and len(told) == 1 and "on purpose" in told[0]
