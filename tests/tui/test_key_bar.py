"""The keys at the bottom of a screen."""

from __future__ import annotations

import asyncio

from textual.widgets._footer import FooterKey

from ckptdoctor.tui.app import BrowserApp
from tests.tui import press, settled, text_of


def test_keys_follow_the_focus_and_stay_the_same_widgets():
    """Wherever the focus is, the footer says what works there, and as far as it can with the keys that it has."""

    async def run():
        app = BrowserApp("resnet.pt")
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(pilot)
            before = list(app.screen.query(FooterKey))
            for key in ("t", "t", "tab", "tab", "slash", "escape"):
                await press(pilot, key)
                shown = {}
                for _, binding, _, _ in app.screen.active_bindings.values():
                    if binding.show:
                        shown.setdefault(binding.action, binding)
                keys = list(app.screen.query(FooterKey))
                assert [each.description for each in keys] == [each.description for each in shown.values()], key
                assert [each.key for each in keys] == [each.key for each in shown.values()], key
                both = min(len(before), len(keys))
                assert keys[:both] == before[:both]
                before = keys

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
    return [each.description for each in app.screen.query(FooterKey)]
