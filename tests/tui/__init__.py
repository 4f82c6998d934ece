"""The browser without a terminal: run it, press keys, and read the screen as lines of text."""

from __future__ import annotations

import asyncio
import os
import re

from textual.events import Key

from ckptdoctor.tui.app import BrowserApp
from tests.golden import golden

NARROW, NORMAL, WIDE = (80, 24), (120, 40), (200, 50)


def text_of(app):
    """The screen as text: one line each, without what no one sees."""
    text = "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())
    return re.sub(r"in \d\.\d\d s", "in 0.00 s", text)  # the one thing that differs from run to run


async def settled(pilot):
    """Wait until no thread works any more and everything is drawn."""
    quiet = 0
    while quiet < 3:  # what a thread has found may start another one
        quiet = 0 if any(not each.is_finished for each in pilot.app.workers) else quiet + 1
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()


async def press(pilot, *keys):
    """Press keys, each when the one before is dealt with; ``"text:…"`` is typed."""
    for key in keys:
        if key.startswith("text:"):
            type_at_once(pilot.app, key[5:])
            await pilot.pause(0.15)  # the filter waits for the end of the typing
        else:
            await pilot.press(key)
        await settled(pilot)


def type_at_once(app, text):
    """Type without waiting between one character and the next."""
    for char in text:
        app.post_message(Key(_NAMES.get(char, char), char))


_NAMES = {
    " ": "space",
    ":": "colon",
    "*": "asterisk",
    ".": "full_stop",
    ">": "greater_than_sign",
    "!": "exclamation_mark",
    "/": "slash",
}


def browse(path, *keys, size=NORMAL, look=text_of, theme="ckptdoctor-dark", **options):
    """Open a file, press keys, and give what ``look`` says of the app then (the text of the screen)."""

    async def run():
        app = BrowserApp(os.fspath(path), theme=theme, **options)
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            await press(pilot, *keys)
            return look(app)

    return asyncio.run(run())


def screen(name, path, *keys, size=NORMAL, **options):
    """Hold a screen against ``tests/golden/tui/NAME_WIDTHxHEIGHT.txt``; UPDATE_GOLDEN=1 writes it."""
    golden(f"tui/{name}_{size[0]}x{size[1]}.txt", browse(path, *keys, size=size, **options))
