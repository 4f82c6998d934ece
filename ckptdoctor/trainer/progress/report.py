"""Everything that shows and records a run, as one listener for the rank that speaks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from time import perf_counter
from typing import TextIO

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.events import EpochDone, EventListener, RunEvent, Started, StepDone
from ckptdoctor.trainer.progress.metrics import MetricsLog, refused
from ckptdoctor.trainer.progress.page import PAGE, write

_SHARE = 20
"""The page of curves is not written again before this many times the time that writing it took has passed."""


@contextmanager
def listener(config: RunConfig, team_is_first: bool, stream: TextIO | None = None) -> Iterator[EventListener]:
    """Make the listener of a run: the terminal (``stream``; None: stdout), metrics.jsonl and curves.html.

    Only the first rank speaks and writes; for the others the listener is deaf. Whatever ends the block, the terminal
    is left clean and the files are whole.
    """
    if not team_is_first:
        yield _deaf
        return
    # importing rich draws a random number: so now, before the run seeds its generators or restores them
    import_module("ckptdoctor.trainer.progress.terminal")
    with ExitStack() as open_things:
        yield _Report(config, stream, open_things)


def _deaf(event: RunEvent) -> None:
    """Hear nothing."""


class _Report:
    """The terminal, the record and the page; the first event says from where the run goes on."""

    def __init__(self, config: RunConfig, stream: TextIO | None, open_things: ExitStack) -> None:
        self._config = config
        self._stream = stream
        self._open_things = open_things
        self._next_page = 0.0

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, StepDone):
            self._terminal(event)
            return
        if isinstance(event, Started):
            self._open(event)
        self._log(event)
        self._terminal(event)
        if isinstance(event, EpochDone) and perf_counter() >= self._next_page:
            self._write_page()

    def _open(self, event: Started) -> None:
        # only one rank needs rich
        from ckptdoctor.trainer.progress.terminal import Terminal, console

        path = os.path.join(self._config.out, "metrics.jsonl")
        try:
            os.makedirs(self._config.out, exist_ok=True)
        except OSError as error:
            raise refused(path, error) from error
        self._log = self._open_things.enter_context(MetricsLog(path, event.epoch))
        self._terminal = Terminal(console(self._stream), tuple(self._log.records))
        self._open_things.callback(self._write_page)
        self._open_things.callback(self._terminal.close)

    def _write_page(self) -> None:
        started = perf_counter()
        write(os.path.join(self._config.out, PAGE), self._log.records, self._config.out)
        now = perf_counter()
        self._next_page = now + _SHARE * (now - started)
