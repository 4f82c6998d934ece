"""The keys at the bottom of a screen."""

from __future__ import annotations

import asyncio

from textual._compositor import Compositor

from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.widgets.bars import KeyBar
from tests.tui import press, settled, text_of


def test_keys_follow_the_focus():
    """Wherever the focus is, the bar says what works there."""

    async def run():
        app = BrowserApp("resnet.pt")
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(pilot)
            for key in ("t", "t", "tab", "tab", "slash", "escape"):
                await press(pilot, key)
                shown = {}
                for _, binding, _, _ in app.screen.active_bindings.values():
                    if binding.show:
                        shown.setdefault(binding.action, binding)
                keys = app.screen.query_one(KeyBar).keys
                assert [each.description for each in keys] == [each.description for each in shown.values()], key
                assert [each.key for each in keys] == [each.key for each in shown.values()], key

    asyncio.run(run())


def test_another_focus_moves_nothing_on_the_screen(monkeypatch):
    """It draws the two panes and the keys again; to lay out all anew would take most of the time of a key."""
    laid_out, drawn = [], []
    reflow, full = Compositor.reflow, Compositor.render_full_update
    monkeypatch.setattr(Compositor, "reflow", lambda *a, **b: laid_out.append(1) or reflow(*a, **b))
    monkeypatch.setattr(Compositor, "render_full_update", lambda *a, **b: drawn.append(1) or full(*a, **b))

    async def run():
        app = BrowserApp("resnet.pt")
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(pilot)
            await press(pilot, "tab")
            await press(pilot, "shift+tab")
            assert laid_out and drawn
            laid_out.clear()
            drawn.clear()
            before = text_of(app)
            await press(pilot, "tab")
            assert text_of(app) != before
            await press(pilot, "shift+tab")
            assert text_of(app) == before
            assert not laid_out and not drawn

    asyncio.run(run())


def test_the_key_below_the_mouse_stands_out_and_says_more():
    """As long as the mouse is there."""

    async def run():
        app = BrowserApp("resnet.pt")
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(pilot)
            bar = app.screen.query_one(KeyBar)
            plain, first, second = bar.render(), *bar.keys[:2]
            await pilot.hover(bar, offset=(1, 0))
            assert bar.tooltip == first.tooltip and bar.render() != plain
            await pilot.hover(bar, offset=(first.cells + 1, 0))
            assert bar.tooltip == second.tooltip
            await pilot.hover(bar, offset=(sum(each.cells for each in bar.keys) + 1, 0))
            assert bar.tooltip is None and bar.render() == plain
            await pilot.hover(bar, offset=(1, 0))
            await pilot.hover("#title")
            assert bar.tooltip is None and bar.render() == plain

    asyncio.run(run())


def test_keys_that_do_not_fit_are_left_out_whole():
    """The first ones stay, with the one that lists all keys and the one that leaves; with more room all come back."""

    async def run():
        app = BrowserApp("resnet.pt")
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(pilot)
            every = _descriptions(app)
            for width in (55, 44, 30, 120):
                await pilot.resize_terminal(width, 40)
                await settled(pilot)
                shown = text_of(app).splitlines()[-1]
                keys = _descriptions(app)
                assert len(shown) <= width and shown.endswith(f"q {keys[-1]}"), shown
                assert keys == [each for each in every if each in keys]
                assert {"help", "quit", every[0]} <= {*keys}, width
            assert keys == every

    asyncio.run(run())


def _descriptions(app):
    return [each.description for each in app.screen.query_one(KeyBar).keys]
