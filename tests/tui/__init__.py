"""The browser without a terminal: run it, press keys, and read the screen as lines of text."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from concurrent.futures.thread import _worker
from math import inf

from textual.events import Key

from ckptdoctor.tui.app import BrowserApp
from tests.golden import golden

NARROW, NORMAL, WIDE = (80, 24), (120, 40), (200, 50)


def text_of(app):
    """The screen as text: one line each, without what no one sees."""
    text = "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())
    return re.sub(r"in \d\.\d\d s", "in 0.00 s", text)  # the one thing that differs from run to run


async def settled(pilot):
    """Wait until no thread works, no timer is about to fire, every message is dealt with and everything is drawn.

    It looks at these, and never waits for time to pass: how fast the machine is makes no difference. When nothing is
    left to do but to wait for a timer, its moment comes at once: of several the one that is due first, alone. What
    moves arrives at the next picture.
    """
    app, busy, quiet = pilot.app, 0, 0
    while busy < _ROUNDS:
        if quiet == 2 or app.return_code is not None:  # what a thread has found may start another one
            return
        working = _threads_at_work() or any(not each.is_finished for each in app.workers)
        await asyncio.sleep(0.001 if working or busy > _AT_ONCE else 0)
        if _messages_wait(app):
            busy, quiet = busy + 1, 0
            continue
        for each in app.animator._animations.values():
            each.start_time = -inf
        await pilot.wait_for_animation()  # which draws as well: a thread may wait for that
        if working or _threads_at_work() or _at_work(app):
            busy, quiet = busy + 1, 0
        elif about_to_fire := _timers(app):
            _fire_first(about_to_fire)
            busy, quiet = busy + 1, 0
        else:
            busy, quiet = 0, quiet + 1
    raise AssertionError(f"it is never done: {text_of(app)}")


_AT_ONCE = 200  # rounds after which what is still at work seems to wait for time to pass
_ROUNDS = 100_000  # far more than anything takes


def _threads_at_work():
    """Whether a thread computes: also for a worker that is cancelled, and so calls itself finished.

    The pool counts those that do not, and from Python 3.12 on too few where one takes what another was woken for.
    """
    threads = asyncio.get_running_loop()._default_executor
    if threads is None or threads._idle_semaphore._value >= len(threads._threads):
        return False
    frames = sys._current_frames()
    at = [frames[each.ident].f_code for each in threads._threads if each.ident in frames]
    return not threads._work_queue.empty() or any(code is not _worker.__code__ for code in at)


def _timers(app):
    """What waits for a moment and then does something once: the filter for the end of the typing, and so on."""
    timers = [timer for each in (app, *app._registry) for timer in each._timers]
    tasks = [each._task for each in timers if each._repeat == 0 and each._interval < 1]
    return [task for task in tasks if task is not None and not task.done()]


def _fire_first(tasks):
    """End the sleep of the timer that has the least left of it; one that does not sleep is firing already."""
    sleeps = {id(task._fut_waiter) for task in tasks}
    due = [each for each in asyncio.get_running_loop()._scheduled if each._args and id(each._args[0]) in sleeps]
    if due:
        min(due)._run()


def _messages_wait(app):
    """Whether a message waits anywhere, or is being dealt with: otherwise everyone waits for the next one."""
    for each in (app, *app._registry):
        running = each._task is not None and not each._task.done() and not each._closed
        if running and all(waiter.done() for waiter in each._message_queue.ready_event._waiters):
            return True
    return False


def _at_work(app):
    """Whether a message waits, or something is still to be drawn or to be done once it is drawn."""
    if any(each._next_callbacks for each in (app, *app._registry)) or _messages_wait(app):
        return True
    return any(getattr(app.screen, name, None) for name in _UNDRAWN)


_UNDRAWN = (
    *("_callbacks", "_dirty_widgets", "_bindings_updated"),
    *("_layout_required", "_scroll_required", "_repaint_required", "_recompose_required"),
)


async def press(pilot, *keys):
    """Press keys, each when the one before is dealt with; ``"text:…"`` is typed."""
    for key in keys:
        await press_at_once(pilot, key)


async def press_at_once(pilot, *keys):
    """Press keys without waiting between one and the next, as a slow line or the clipboard brings them."""
    post(pilot, *keys)
    await settled(pilot)


def post(pilot, *keys):
    """Press keys, and wait for nothing."""
    for key in keys:
        if key.startswith("text:"):
            for char in key[5:]:
                pilot.app.post_message(Key(_NAMES.get(char, char), char))
        else:
            pilot.app.post_message(Key(key, _SIGNS.get(key, key if len(key) == 1 else None)))


_NAMES = {
    " ": "space",
    ":": "colon",
    "*": "asterisk",
    ".": "full_stop",
    ">": "greater_than_sign",
    "!": "exclamation_mark",
    "/": "slash",
    ",": "comma",
}
_SIGNS = {name: sign for sign, name in _NAMES.items()}


def walk(path, *stages, size=NORMAL, look=text_of, theme="ckptdoctor-dark", **options):
    """Open a file, press the keys of each stage, and give what ``look`` says of the app after each (its text).

    To open a browser takes as long as twenty keys: what can be seen one after the other needs one session.
    """

    async def run():
        app, found = BrowserApp(os.fspath(path), theme=theme, **options), []
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            for keys in stages:
                await press(pilot, *keys)
                found.append(look(app))
        return found

    return asyncio.run(run())


def browse(path, *keys, **options):
    """Open a file, press keys, and give what ``look`` says of the app then (the text of the screen)."""
    (found,) = walk(path, keys, **options)
    return found


def screens(path, stages, size=NORMAL, **options):
    """Hold the screen after the keys of each stage against ``tests/golden/tui/NAME_WIDTHxHEIGHT.txt``, by its name.

    UPDATE_GOLDEN=1 writes them.
    """
    for name, text in zip(stages, walk(path, *stages.values(), size=size, **options), strict=True):
        golden(f"tui/{name}_{size[0]}x{size[1]}.txt", text)


def screen(name, path, *keys, **options):
    """Hold one screen against its file."""
    screens(path, {name: keys}, **options)
