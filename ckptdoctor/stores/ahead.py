"""Lists folders of a store on another machine before it is their turn, several at once, since answers take a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter

from ckptdoctor.runs.listing import Entry, entries

_AT_ONCE = 16  # listings of each depth that were asked for and not taken
_LATE = 0.01  # seconds that listings take one by one, from which on it is worth it,
_IN_A_ROW = 6  # where so many in a row do
_ENTRIES = 20_000  # that these hold together, as far as the last one tells


class Ahead:
    """Listings of the folders that a walk comes to next. Where it is not ``used``, none are asked for."""

    def __init__(self, used: bool) -> None:
        self.used = used
        self._pool: ThreadPoolExecutor | None = None
        self._coming: list[deque[str]] = []  # by depth
        self._asked: list[dict[str, Future[list[Entry]]]] = []
        self._room = _AT_ONCE
        self._late = 0  # in a row

    @contextmanager
    def of(self, folders: Iterable[str]) -> Iterator[None]:
        """Ask for these meanwhile, in this order, as the walk takes them."""
        if not self.used:
            yield
            return
        self._coming.append(deque(folders))
        self._asked.append({})
        self._ask()
        try:
            yield
        finally:
            self._coming.pop()
            for each in self._asked.pop().values():
                each.cancel()

    def _ask(self) -> None:
        coming, asked = self._coming[-1], self._asked[-1]
        while self._late >= _IN_A_ROW and coming and len(asked) < self._room:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_AT_ONCE)
            path = coming.popleft()
            asked[path] = self._pool.submit(entries, path)

    def entries(self, path: str) -> list[Entry]:
        """Return what is in a folder. Raises UnreadableError where it cannot be listed."""
        asked = next((each.pop(path) for each in self._asked if path in each), None)
        if asked is None:
            started = perf_counter()
            found = entries(path)
            late = self._late >= _IN_A_ROW or perf_counter() - started > _LATE
            self._late = self._late + 1 if late else 0
            return found
        found = asked.result()
        self._room = max(1, min(_AT_ONCE, _ENTRIES // max(1, len(found))))
        self._ask()
        return found

    def close(self) -> None:
        """Take back what was not begun."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
