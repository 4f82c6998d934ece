"""A run on a terminal: finished epochs scroll by as the rows of a table, bars and a curve stay below them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ckptdoctor.trainer.events import EpochDone, Saved
from ckptdoctor.trainer.progress import phrases, table
from ckptdoctor.trainer.progress.phrases import Rows
from ckptdoctor.trainer.progress.screen import curve, fitted, screen
from ckptdoctor.trainer.progress.story import Story

_PAUSE = 0.1
"""Seconds between two drawings."""


class Bars:
    """Drawing takes milliseconds, a step sometimes less than one: so what is new waits until the next drawing is due.

    No thread draws: there is none that could be lost in a fork, or write into the middle of an error message.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._due = 0.0
        self._waiting: list[Text] = []
        self._headed = False
        self._live: Live | None = None

    def start(self, story: Story) -> None:
        """Say what runs, and begin to draw."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        for label, text in phrases.header(story.started):
            grid.add_row(label, Text(fitted(text, self._console.encoding)))
        self._console.print(grid)
        self._console.print()
        self._live = Live(
            console=self._console,
            get_renderable=lambda: self._screen(story),
            auto_refresh=False,
            transient=True,
            vertical_overflow="crop",
            # what others print to this terminal goes above the bars; what they send elsewhere must arrive there
            redirect_stdout=self._console.file is sys.stdout,
            redirect_stderr=self._console.file is sys.stdout and sys.stderr.isatty(),
        )
        self._live.start()
        self._draw()

    def tick(self, story: Story) -> None:
        """A step is done: draw when it is time, and in any case when a long epoch goes over to its test."""
        now = self._console.get_time()
        if now >= self._due or (story.at_end_of_epoch and now - story.epoch_clock >= 1):
            self._draw()

    def epoch(self, event: EpochDone, story: Story) -> None:
        """One more row of the table; the first comes with the heading."""
        columns = table.columns(story.started.config, self._console.width)
        if not self._headed:
            self._waiting.append(Text(table.heading(*columns), style="bold"))
            self._headed = True
        self.say([table.row(event, *columns)])

    def save(self, event: Saved) -> None:
        """The screen names the last checkpoint by itself."""

    def end(self, headline: str, rows: Rows, story: Story) -> None:
        """Replace what was drawn by what stays: the whole curve, and what to do next."""
        self.close()
        lines = curve(story, *self._console.size, self._console.encoding) if len(story.epochs) > 1 else []
        self._waiting += [*map(Text, [*lines, ""]), Text(fitted(headline, self._console.encoding), style="bold")]
        self._waiting += self._ending(rows)
        self._write()

    def say(self, lines: Iterable[str]) -> None:
        """Lines that stay above the bars, with the next drawing."""
        self._waiting += [Text(fitted(line, self._console.encoding)) for line in lines]
        if self._console.get_time() >= self._due:
            self._draw()

    def close(self) -> None:
        """No bars, the cursor visible, and nothing kept back."""
        live, self._live = self._live, None
        if live is not None:
            try:
                self._write()
            finally:  # even when there is nobody left to read it
                live.stop()

    def _ending(self, rows: Rows) -> Iterator[Text]:
        """Labels beside what they say or, where that does not fit, above it: a wrapped command is no longer one."""
        margin = max(len(label) for label, _ in rows) + 2
        for label, text in rows:
            beside = margin + len(text) <= self._console.width
            space = f"{label:<{margin}}" if beside else f"{label}\n  "
            yield Text.assemble((space, "dim"), fitted(text, self._console.encoding))

    def _draw(self) -> None:
        self._write()
        if self._live is not None:
            self._live.refresh()
        self._due = self._console.get_time() + _PAUSE

    def _write(self) -> None:
        """What waits, without line breaks of our own: a command must be copied from the terminal in one piece."""
        for text in self._waiting:
            self._console.print(text, soft_wrap=True)
        self._waiting.clear()

    def _screen(self, story: Story) -> RenderableType:
        return screen(story, self._console.get_time(), self._console) if self._live is not None else Text()
