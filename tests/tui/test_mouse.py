"""The mouse does what keys do."""

from __future__ import annotations

import asyncio

import pytest
from textual import events

from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.screens.browser import BrowserScreen
from ckptdoctor.tui.widgets.bars import KeyBar
from ckptdoctor.tui.widgets.findings import FindingsView
from ckptdoctor.tui.widgets.tree_view import TreeView
from tests.tui import NORMAL, press, settled


def clicked(*acts, keys=(), size=NORMAL, look=lambda app: app.screen.query_one(TreeView)):
    """What can be seen after keys and each of the things then done with the mouse."""

    async def run():
        app, found = BrowserApp("resnet.pt"), []
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            await press(pilot, *keys)
            for act in acts:
                await act(pilot)
                await settled(pilot)
                found.append(look(app))
        return found

    return asyncio.run(run())


def name(app):
    """What the cursor of the tree is on."""
    tree = app.screen.query_one(TreeView)
    return tree.lines.tree.name(tree.line().parent, tree.line().item)


def test_a_click_on_the_marker_opens_and_closes():
    """One click is enough there."""
    before, more, less = clicked(
        lambda pilot: pilot.pause(),
        lambda pilot: pilot.click(TreeView, offset=(6, 4)),
        lambda pilot: pilot.click(TreeView, offset=(2, 1)),
        look=lambda app: app.screen.query_one(TreeView).count(),
    )
    assert less < before < more


def test_a_click_on_a_finding_shows_it_and_two_jump():
    """As the cursor and enter do."""

    def title(app):
        return str(app.screen.query_one("#detail").border_title)

    assert clicked(lambda pilot: pilot.click(FindingsView, offset=(12, 1)), look=title)[0].startswith("N401")
    assert clicked(lambda pilot: pilot.click(FindingsView, offset=(12, 1), times=2), look=name) == ["conv1.weight"]


def test_the_wheel_scrolls_and_leaves_the_cursor():
    """Three lines at a time, or as far as there are any."""

    async def turn(pilot):
        view = pilot.app.screen.query_one(TreeView)
        x, y = view.region.x + 5, view.region.y + 3
        for _ in range(2):
            pilot.app.post_message(events.MouseScrollDown(view, x, y, 0, 1, 0, False, False, False, x, y))
            await settled(pilot)

    (tree,) = clicked(turn, keys=("asterisk", "end", "space", "home"), size=(80, 24))
    assert tree.scroll_offset.y > 0
    assert tree.cursor == 0


def test_a_click_outside_a_line_does_nothing():
    """Below the last line there is nothing to choose."""
    (tree,) = clicked(lambda pilot: pilot.click(TreeView, offset=(5, 20)))
    assert tree.cursor == 0


@pytest.mark.parametrize("key", ["filter", "help", "list"])
def test_the_footer_can_be_clicked(key):
    """Each of its keys."""

    async def click(pilot):
        bar = pilot.app.screen.query_one(KeyBar)
        names = [each.description for each in bar.keys]
        before = bar.keys[: names.index(key)]
        await pilot.click(bar, offset=(sum(each.cells for each in before) + 1, 0))

    def changed(app):
        screen = app.screen
        return (
            not isinstance(screen, BrowserScreen)
            or screen.query_one("#filter").display
            or screen.query_one("#list").display
        )

    assert clicked(click, look=changed) == [True]
