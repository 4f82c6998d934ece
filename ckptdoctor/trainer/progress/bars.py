"""A run on a terminal: finished epochs scroll by as the rows of a table, bars and a curve stay below them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import nan

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column, Table
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


class RunProgress(Progress):
    """Two bars, of the run and of its epoch; below them the last step, the last checkpoint, and the curve.

    It never has more rows or columns than the console. No thread draws: there is none that could be lost in a fork, or
    write into the middle of an error message.
    """

    _open = False

    def __init__(self, console: Console, story: Story) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(None, table_column=Column(ratio=1)),
            TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True, justify="right", min_width=9)),
            console=console,
            auto_refresh=False,
            transient=True,
            get_time=console.get_time,
            # what others print to this terminal goes above the bars; what they send elsewhere must arrive there
            redirect_stdout=console.file is sys.stdout,
            redirect_stderr=console.file is sys.stdout and sys.stderr.isatty(),
            expand=True,
        )
        self.live.vertical_overflow = "crop"
        self._story = story
        started = story.started
        before, total = started.epoch * started.steps, max(started.config.epochs * started.steps, 1)
        self._run = self.add_task("", completed=before, total=total, left="")  # what was done before has no speed
        self._epoch = self.add_task("", total=max(started.steps, 1), left="")
        self._open = True

    def draw(self) -> None:
        """Bring the bars to where the run is, and show everything."""
        epochs, steps, latest = self._story.started.config.epochs, self._story.started.steps, self._story.latest
        done = (latest.epoch - 1) * steps + latest.step if latest else self._story.started.epoch * steps
        number = latest.epoch if latest else min(self._story.started.epoch + 1, epochs)
        step = latest.step if latest else 0
        self.update(self._run, completed=done, description=_count("epoch", number, epochs))
        speed = self.tasks[0].speed
        self.update(self._run, left=_left(epochs * steps - done, speed))
        left = "testing" if step == steps else _left(steps - step, speed)
        self.update(self._epoch, completed=step, description=_count("step", step, steps), left=left)
        self.refresh()

    def get_renderables(self) -> Iterator[RenderableType]:
        """Nothing before it is complete, and nothing once it is closed: what is drawn last would stay."""
        if not self._open:
            return
        width, height = self.console.size
        yield self.make_tasks_table(self.tasks)
        yield from (_line(fitted(text, self.console.encoding)) for text in _figures(self._story, width))
        plot = curve(self._story, width, min(height // 3, height - _OTHER_ROWS), self.console.encoding)
        yield from map(_line, plot)

    def stop(self) -> None:
        """Leave the terminal as it was found."""
        self._open = False
        super().stop()


def _count(label: str, done: int, total: int) -> str:
    """``step  7/39``, always of the same width, so that the bars keep theirs."""
    return f"{label} {done:>{len(f'{total:,}')},}/{total:,}"


def _left(steps: int, speed: float | None) -> str:
    """``0:05 left``; ``speed`` is in steps a second, tests included."""
    return f"{duration(steps / speed)} left" if speed else ""


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
    """Drawing takes milliseconds, a step sometimes less than one: what is new waits until the next drawing is due."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._due = 0.0
        self._waiting: list[Text] = []
        self._headed = False
        self._progress: RunProgress | None = None

    def start(self, story: Story) -> None:
        """Say what runs, and begin to draw."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        for label, text in phrases.header(story.started):
            grid.add_row(label, Text(fitted(text, self._console.encoding)))
        self._console.print(grid)
        self._console.print()
        self._progress = RunProgress(self._console, story)
        self._progress.start()
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
        progress, self._progress = self._progress, None
        if progress is not None:
            try:
                self._write()
            finally:  # even when there is nobody left to read it
                progress.stop()

    def _ending(self, rows: LabelledRows) -> Iterator[Text]:
        """Labels beside what they say or, where that does not fit, above it: a wrapped command is no longer one."""
        margin = max(len(label) for label, _ in rows) + 2
        for label, text in rows:
            beside = margin + len(text) <= self._console.width
            space = f"{label:<{margin}}" if beside else f"{label}\n  "
            yield Text.assemble((space, "dim"), fitted(text, self._console.encoding))

    def _draw(self) -> None:
        self._write()
        if self._progress is not None:
            self._progress.draw()
        self._due = self._console.get_time() + _PAUSE

    def _write(self) -> None:
        """Print what waits, without line breaks of our own: a command must be copied from the terminal in one piece."""
        for text in self._waiting:
            self._console.print(text, soft_wrap=True)
        self._waiting.clear()
