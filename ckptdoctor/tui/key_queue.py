"""Keys are heard in their order, however quickly they come: each when the one before has done what it does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TypeVar

from textual.app import App
from textual.command import CommandPalette
from textual.dom import DOMNode
from textual.events import Event, Key, Paste
from textual.worker import WorkerError

from ckptdoctor.tui.background import AT_ONCE, BACK, OPENS, StillReading
from ckptdoctor.tui.keys import MOVES, QUIT

T = TypeVar("T")

_ROUNDS = 3  # the first goes behind the key itself, the others behind what that has brought about


class KeyQueue(App[T], inherit_bindings=False):
    """Hands over a key, or what is pasted, once the screen that the one before opens is there to have it.

    Textual gives a key to what has the focus at once, and to the screen and the application only when nothing on the
    way there wants it: meanwhile the next key may have gone to a screen that is about to be covered. Keys that move a
    cursor and letters of a text stay where they are given, so that they need not wait for each other. What is typed
    before the first screen has its contents waits for these; a key that leaves does not, and what was typed before it
    is forgotten.
    """

    def __init__(self) -> None:
        super().__init__()
        self._typed: deque[Key | Paste] = deque()
        self._is_on_its_way = False  # whether something is that the next key has to wait for
        self._stayed = False  # whether keys before it may still be where they were given
        self._has_begun = asyncio.Event()  # whether there is a screen of ours

    def on_ready(self) -> None:
        """Let keys that were typed ahead go on: the first screen is there."""
        self._has_begun.set()

    async def on_event(self, event: Event) -> None:
        """Let what is typed wait for its turn; everything else has none."""
        if isinstance(event, (Key, Paste)) and not event.is_forwarded:
            if self._typed and self._leaves(event):
                self._typed.clear()
                await super().on_event(event)
                return
            self._typed.append(event)
            await self._hand_over()
        else:
            await super().on_event(event)

    def _is_to_stay(self, event: Key | Paste) -> bool:
        if self._is_text(event):
            return True
        return self._bound(event) in MOVES

    def _is_text(self, event: Key | Paste) -> bool:
        """Return whether the key or the paste is for a line that is typed in."""
        focused = self.focused
        if focused is None or isinstance(event, Paste):
            return focused is not None
        return focused.check_consume_key(event.key, event.character)

    async def _hand_over(self) -> None:
        while self._typed and not self._is_on_its_way:
            event = self._typed[0]
            awaited = self._awaited(event)
            if awaited is not None:
                self._is_on_its_way = True
                self.run_worker(self._follow_when_there(awaited), group="in-turn")
                return
            stays = self._is_to_stay(event)
            if self._stayed and not stays:
                self._follow(_ROUNDS)
            else:
                self._typed.popleft()
                await super().on_event(event)
                self._stayed = stays
                if not stays:
                    self._follow(_ROUNDS)

    def _leaves(self, event: Key | Paste) -> bool:
        """Return whether it ends the program, or leaves a screen without contents, and cannot be typed text."""
        if not isinstance(event, Key) or event.is_printable:
            return False
        bound = self._bound(event)
        return bound == QUIT.id or (bound == BACK and self._is_filling())

    def _is_filling(self) -> bool:
        return bool(self.screen_stack) and isinstance(self.screen, StillReading) and not self.screen.filled.is_set()

    def _bound(self, event: Key | Paste) -> str | None:
        """Return the id of the binding that the key has on this screen."""
        if not self.screen_stack or not isinstance(event, Key):
            return None
        active = self.screen.active_bindings.get(event.key)
        return active.binding.id if active is not None else None

    def _awaited(self, event: Key | Paste) -> Awaitable[object] | None:
        """Return the work that has to be done before this key can have its effect; None where nothing has to be."""
        if not self._has_begun.is_set():
            return self._has_begun.wait()
        bound = None if self._is_text(event) else self._bound(event)
        if bound == QUIT.id:
            return None
        if isinstance(self.screen, StillReading) and not self.screen.filled.is_set() and bound not in AT_ONCE:
            return self.screen.filled.wait()
        for worker in self.workers:
            searches = isinstance(worker.node, CommandPalette) and not self._is_text(event)
            if not worker.is_finished and (searches or worker.group == OPENS):
                return worker.wait()
        return None

    async def _follow_when_there(self, awaited: Awaitable[object]) -> None:
        with suppress(WorkerError):  # whoever started it is told
            await awaited
        self._follow(_ROUNDS)

    def _follow(self, rounds: int) -> None:
        """Go the way of a key, from what has the focus up to the application, behind everything that is under way."""
        self._is_on_its_way, self._stayed = True, False
        start = self.focused or self.screen
        self._go_on(start.ancestors_with_self, start, rounds)

    def _go_on(self, way: Sequence[DOMNode], start: DOMNode, rounds: int) -> None:
        for at, node in enumerate(way):
            then = self._go_on if node is not self else self._arrive
            if node.call_later(then, way[at + 1 :], start, rounds):
                return  # otherwise it is gone, and so is what was under way there

    async def _arrive(self, way: Sequence[DOMNode], start: DOMNode, rounds: int) -> None:
        if start is not (self.focused or self.screen):
            self._follow(_ROUNDS)  # of what has the focus now
        elif rounds > 1:
            self._follow(rounds - 1)
        else:
            self._is_on_its_way = False
            await self._hand_over()
