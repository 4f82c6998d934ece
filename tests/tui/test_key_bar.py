"""The keys at the bottom of a screen."""

from __future__ import annotations

import asyncio

from textual.widgets._footer import FooterKey

from ckptdoctor.tui.app import BrowserApp
from tests.tui import press, settled


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
