"""Compares two checkpoints in threads and reports to a screen: headers first, values when somebody wants them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import is_
from time import perf_counter

from textual.message_pump import MessagePump
from textual.worker import Worker, get_current_worker

from ckptdoctor.diagnose.events import Progress
from ckptdoctor.differences import Difference
from ckptdoctor.diffing.headers import diff
from ckptdoctor.diffing.request import DiffRequest
from ckptdoctor.diffing.values import compare_values_of
from ckptdoctor.tui.background import guarded
from ckptdoctor.tui.examining import collect_again
from ckptdoctor.tui.messages import ComparingFailed, ComparisonMade, Progressed, ValuesCompared
from ckptdoctor.tui.models.comparison import Comparison, news, ties_by_name

_EVERY = 0.1  # seconds between two reports of how far it is


class Comparing:
    """One comparison of two checkpoints. ``headers`` and ``values`` are for thread workers."""

    def __init__(self, screen: MessagePump, request: DiffRequest) -> None:
        self.screen = screen
        self.request = request
        self._said = 0.0

    def headers(self) -> None:
        """Compare the headers."""
        gc.disable()  # a look through the millions of objects of a large file would stop the screen for a second
        try:
            self._guarded(self._headers)
        finally:
            collect_again()

    def values(self, comparison: Comparison) -> None:
        """Compare the values that are not known yet, until all are or the worker is cancelled."""
        worker = get_current_worker()
        self._guarded(lambda: self._values(comparison, worker))

    def _headers(self) -> None:
        self.screen.post_message(ComparisonMade(Comparison(diff(self.request))))

    def _values(self, comparison: Comparison, worker: Worker[None]) -> None:
        def step(found: Difference, entries: Sequence[int]) -> None:
            if entries:
                self.screen.post_message(ValuesCompared(news(found, entries)))
            elif not _same_pairs(found, comparison.found):  # contents have brought tensors together
                self.screen.post_message(ComparisonMade(Comparison(found)))

        def going(done: int, total: int) -> bool:
            self._tell(done, total)
            return not worker.is_cancelled

        found = compare_values_of(comparison.found, self.request, step, going)
        last = None if found is None else replace(news(found, ()), ties=ties_by_name(found))
        self.screen.post_message(ValuesCompared(last, ended=True))

    def _tell(self, done: int, total: int) -> None:
        now = perf_counter()
        if now - self._said >= _EVERY:
            self._said = now
            self.screen.post_message(Progressed(Progress("values", done, total)))

    def _guarded(self, work: Callable[[], None]) -> None:
        guarded(work, lambda sentence: self.screen.post_message(ComparingFailed(sentence)))


def _same_pairs(one: Difference, other: Difference) -> bool:
    """Whether entries are the same in both."""
    return len(one.pairs) == len(other.pairs) and all(map(is_, one.pairs, other.pairs))
