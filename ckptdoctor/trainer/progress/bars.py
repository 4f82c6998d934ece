"""A run on a terminal: finished epochs scroll by as the rows of a table, bars and a curve stay below them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import nan

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.events import EpochDone, Saved
from ckptdoctor.trainer.progress import phrases
from ckptdoctor.trainer.progress.curve import draw
from ckptdoctor.trainer.progress.phrases import LabelledRows
from ckptdoctor.trainer.progress.story import Story
from ckptdoctor.trainer.progress.text import duration, fitted, percent_of


@dataclass(frozen=True)
class TableColumn:
    """One figure of an epoch."""

    title: str
    width: int
    rank: int
    """Where there is not room for all, the highest ranks go first."""
    text: Callable[[EpochDone], str]


def table_columns(config: RunConfig, width: int) -> tuple[Sequence[TableColumn], int]:
    """The columns that fit into ``width``, and the spaces between them (2, or 1 where that makes room for all)."""
    chosen = _all(config)
    gap = 2
    while len(chosen) > 1 and _needed(chosen, gap) > width:
        if gap == 2 and _needed(chosen, 1) <= width:
            gap = 1
        else:
            least = max(chosen, key=lambda column: column.rank)
            chosen = [column for column in chosen if column is not least]
    return chosen, gap


def table_heading(chosen: Sequence[TableColumn], gap: int) -> str:
    """The titles over the figures."""
    return (" " * gap).join(f"{column.title:>{column.width}}" for column in chosen)


def table_row(event: EpochDone, chosen: Sequence[TableColumn], gap: int) -> str:
    """The figures of one epoch."""
    return (" " * gap).join(f"{column.text(event):>{column.width}}" for column in chosen)


def _all(config: RunConfig) -> list[TableColumn]:
    number = len(f"{config.epochs}")
    ema = [TableColumn("EMA", 7, 2, lambda event: "" if event.ema_accuracy is None else percent_of(event.ema_accuracy))]
    return [
        TableColumn("epoch", max(5, 2 * number + 1), 0, lambda event: f"{event.epoch:>{number}}/{config.epochs}"),
        TableColumn("train loss", 10, 7, lambda event: f"{event.train_loss:.4f}"),
        TableColumn("train acc", 9, 4, lambda event: percent_of(event.train_accuracy)),
        TableColumn("test loss", 9, 6, lambda event: f"{event.test_loss:.4f}"),
        TableColumn("test acc", 8, 1, lambda event: percent_of(event.test_accuracy)),
        *(ema if config.ema else []),
        TableColumn("images/s", 8, 3, lambda event: f"{event.images_per_second:,.0f}"),
        TableColumn("time", 7, 5, lambda event: f"{event.seconds:.1f} s"),
        TableColumn("lr", 7, 8, lambda event: f"{event.learning_rate:.3g}"),
    ]


def _needed(chosen: Sequence[TableColumn], gap: int) -> int:
    return sum(column.width for column in chosen) + gap * (len(chosen) - 1)


_WIDEST = 100
_TALLEST = 9
_OTHER_ROWS = 8
"""Rows that are not the plot: bars, figures, its title, and one of the table above."""


def screen(story: Story, now: float, console: Console) -> RenderableType:
    """Everything below the finished lines, at the time ``now``; never more rows or columns than the console has."""
    width, height = console.size
    figures = (fitted(text, console.encoding) for text in _figures(story, width))
    plot = curve(story, width, min(height // 3, height - _OTHER_ROWS), console.encoding)
    return Group(_bars(story, now), *map(_line, [*figures, *plot]))


def curve(story: Story, width: int, height: int, encoding: str) -> list[str]:
    """A title and the test accuracy of all epochs in up to ``height`` rows; nothing where that would say nothing."""
    rows = min(height - (height + 1) % 2, _TALLEST)  # an odd number of rows has one for the middle
    if not story.epochs or rows < 3:
        return []
    last = max(story.epochs)
    values = [story.epochs.get(epoch, nan) for epoch in range(min(story.epochs), last + 1)]
    total = len(values) + max(story.started.config.epochs - last, 0)
    lines = draw(values, min(width, _WIDEST), rows, total=total, ascii_only=not encoding.startswith("utf"))
    return ["", "test accuracy", *lines]


def _bars(story: Story, now: float) -> Table:
    """Two bars: the progress of the run, and that of its epoch."""
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, justify="right", min_width=9)
    config, latest, steps = story.started.config, story.latest, story.started.steps
    number = latest.epoch if latest else min(story.started.epoch + 1, config.epochs)
    step = latest.step if latest else 0
    grid.add_row(_count("epoch", number, config.epochs), _bar(story.done, story.total), _left(story.left(now)))
    grid.add_row(_count("step", step, steps), _bar(step, steps), _left(story.epoch_left(now), step == steps))
    return grid


def _count(label: str, done: int, total: int) -> str:
    """``step  7/39``, always of the same width, so that the bars keep theirs."""
    return f"{label} {done:>{len(f'{total:,}')},}/{total:,}"


def _bar(done: int, total: int) -> ProgressBar:
    return ProgressBar(total=max(total, 1), completed=done)


def _left(seconds: float | None, testing: bool = False) -> str:
    if testing:
        return "testing"
    return "" if seconds is None else f"{duration(seconds)} left"


def _figures(story: Story, width: int) -> Iterator[str]:
    """The last step and the last checkpoint, each in the longest form that fits."""
    step = story.latest
    if step is not None:
        loss, accuracy, speed = f"loss {step.loss:.4f}", percent_of(step.accuracy), f"{step.images_per_second:,.0f}"
        full = f"{loss} · accuracy {accuracy} · {speed} images/s"
        yield full if len(full) <= width else f"{loss} · {accuracy} · {speed}/s"
        full = phrases.batches(step.replica_batches, story.started.devices)
        yield full if len(full) <= width else full.partition(" on ")[0]
    if story.saved:
        yield f"saved {story.saved[-1]}"


def _line(text: str) -> Text:
    """One row, whatever its length: what wrapped would move everything below it."""
    return Text(text, no_wrap=True, overflow="crop")


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
        columns = table_columns(story.started.config, self._console.width)
        if not self._headed:
            self._waiting.append(Text(table_heading(*columns), style="bold"))
            self._headed = True
        self.say([table_row(event, *columns)])

    def save(self, event: Saved) -> None:
        """The screen names the last checkpoint by itself."""

    def end(self, headline: str, rows: LabelledRows, story: Story) -> None:
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

    def _ending(self, rows: LabelledRows) -> Iterator[Text]:
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
        """Print what waits, without line breaks of our own: a command must be copied from the terminal in one piece."""
        for text in self._waiting:
            self._console.print(text, soft_wrap=True)
        self._waiting.clear()

    def _screen(self, story: Story) -> RenderableType:
        return screen(story, self._console.get_time(), self._console) if self._live is not None else Text()
