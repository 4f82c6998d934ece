"""How far long work is: whoever reads or writes many bytes says so here, and whoever listens is told now and then.

It is a matter of the thread: what others do at the same time is told by the one that waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from ckptdoctor.noun import noun


@noun
class Reading:
    """How far one kind of work came: ``done`` of ``total`` bytes of ``what``."""

    what: str
    done: int
    total: int
    complete: bool


Listener = Callable[[str, int, int], None]  # what is done, how many bytes of it, and of how many

_EVERY = 0.1  # seconds between two reports


class Phase:
    """One kind of work: ``done`` of ``total`` bytes."""

    def __init__(self, what: str, total: int, listener: Listener | None) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self._listener = listener
        self._told = float("-inf")

    def advance(self, count: int = 0) -> None:
        """So many bytes more."""
        self.reach(self.done + count)

    def reach(self, done: int) -> None:
        """So many bytes altogether."""
        self.done = done
        if done >= self.total or monotonic() - self._told >= _EVERY:
            self.tell()

    def tell(self) -> None:
        """Say how far it is, now."""
        if self._listener is not None:
            self._listener(self.what, min(self.done, self.total), self.total)
            self._told = monotonic()


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
_phase: ContextVar[Phase | None] = ContextVar("phase", default=None)


@contextmanager
def heard(listener: Listener | None) -> Iterator[None]:
    """Have ``listener`` told of all work in this thread meanwhile; None leaves it to whoever listens already."""
    before = _listener.get()
    _listener.set(listener or before)
    try:
        yield
    finally:
        _listener.set(before)


@contextmanager
def phase(what: str, total: int) -> Iterator[Phase]:
    """One kind of work begins, of so many bytes; ``advance`` counts for it."""
    before = _phase.get()
    begun = Phase(what, total, _listener.get())
    _phase.set(begun)
    try:
        begun.tell()
        yield begun
        begun.tell()
    finally:
        _phase.set(before)


def advance(count: int) -> None:
    """So many bytes more of whatever is being done; nothing where nobody has said what that is."""
    begun = _phase.get()
    if begun is not None:
        begun.advance(count)
