"""A run on a terminal: finished epochs scroll by as the rows of a table, bars and a curve stay below them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, nan

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column, Table
from rich.text import Text

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.events import EpochDone, Saved
from ckptdoctor.trainer.progress import phrases
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
    """Return the columns that fit into ``width``, and the spaces between them (2, or 1 for more room)."""
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
    """Return the titles over the figures."""
    return (" " * gap).join(f"{column.title:>{column.width}}" for column in chosen)


def table_row(event: EpochDone, chosen: Sequence[TableColumn], gap: int) -> str:
    """Return the figures of one epoch."""
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
    """Return a title and the test accuracy of all epochs in up to ``height`` rows.

    There is nothing where that would say nothing.
    """
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
        """Yield nothing before it is complete, and nothing once it is closed: what is drawn last would stay."""
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
    """Return ``step  7/39``, always of the same width, so that the bars keep theirs."""
    return f"{label} {done:>{len(f'{total:,}')},}/{total:,}"


def _left(steps: int, speed: float | None) -> str:
    """Return ``0:05 left``; ``speed`` is in steps a second, tests included."""
    return f"{duration(steps / speed)} left" if speed else ""


def _figures(story: Story, width: int) -> Iterator[str]:
    """Yield the last step and the last checkpoint, each in the longest form that fits."""
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
    """Return one row, whatever its length: what wrapped would move everything below it."""
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
        """Draw after a step when it is time, and in any case when a long epoch goes over to its test."""
        now = self._console.get_time()
        if now >= self._due or (story.at_end_of_epoch and now - story.epoch_clock >= 1):
            self._draw()

    def epoch(self, event: EpochDone, story: Story) -> None:
        """Add one more row to the table; the first comes with the heading."""
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
        """Print lines that stay above the bars, with the next drawing."""
        self._waiting += [Text(fitted(line, self._console.encoding)) for line in lines]
        if self._console.get_time() >= self._due:
            self._draw()

    def close(self) -> None:
        """Leave no bars, the cursor visible, and nothing kept back."""
        progress, self._progress = self._progress, None
        if progress is not None:
            try:
                self._write()
            finally:  # even when there is nobody left to read it
                progress.stop()

    def _ending(self, rows: LabelledRows) -> Iterator[Text]:
        """Yield labels next to their values or, where that does not fit, above them.

        A wrapped command could not be copied.
        """
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


# How an axis may be divided, in thousandths: each divides 1,000, so that an axis never leaves 0 to 100 %; and none is
# so fine that noise looks like progress
_STEPS = (5, 10, 20, 50, 100, 200, 500)

# Which bit of a braille character (from U+2800) is the dot in row 0 to 3 of its left and of its right column:
# https://www.unicode.org/charts/PDF/U2800.pdf
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def draw(values: Sequence[float], width: int, height: int, *, total: int = 0, ascii_only: bool = False) -> list[str]:
    """Return ``height`` lines of at most ``width`` columns: the curve of ``values`` (fractions) over a percent axis.

    ``total`` is how many values there will be, so that a growing curve keeps its place; 0: as many as there are.
    Values that are not finite are left out, others are brought into 0 to 1. Without values the axis is alone.
    """
    if height <= 0:
        return []
    points = [(index, min(max(value, 0.0), 1.0)) for index, value in enumerate(values) if isfinite(value)]
    low, high = _range([value for _, value in points])
    labels = _labels(low, high, height)
    margin = max(map(len, labels)) + 2
    cells = max(width - margin, 1)
    last = max(len(values), total, 1) - 1
    plot = _ascii if ascii_only else _braille
    rows = plot(points, last, cells, height, lambda value: (1000 * value - low) / (high - low))
    sides = "|+" if ascii_only else "│┤"
    lines = (f"{label:>{margin - 2}} {sides[bool(label)]}{row}" for label, row in zip(labels, rows, strict=True))
    return [line.rstrip()[: max(width, 0)] for line in lines]


def _range(values: Sequence[float]) -> tuple[int, int]:
    """Return the ends of the axis in thousandths, on steps so wide that about four of them hold all values."""
    if not values:
        return 0, 1000
    lowest, highest = round(1000 * min(values), 6), round(1000 * max(values), 6)
    step = next(step for step in _STEPS if 4 * step >= highest - lowest)
    low, high = floor(lowest / step) * step, ceil(highest / step) * step
    if low == high:  # one value, or all the same: in the middle
        return max(low - step, 0), min(high + step, 1000)
    return low, high


def _labels(low: int, high: int, height: int) -> list[str]:
    """Return one label a row: the ends, and the middle where a row stands for it."""
    labels = [""] * height
    labels[-1] = _label(low)
    labels[0] = _label(high)
    if height >= 5 and height % 2 and (low + high) % 2 == 0:
        labels[height // 2] = _label((low + high) // 2)
    return labels


def _label(thousandths: int) -> str:
    whole, rest = divmod(thousandths, 10)
    return f"{whole}.{rest} %" if rest else f"{whole} %"


def _braille(
    points: Sequence[tuple[int, float]], last: int, cells: int, height: int, place: Callable[[float], float]
) -> list[str]:
    codes = [[0x2800] * cells for _ in range(height)]
    for x, y in _dots(points, last, 2 * cells, 4 * height, place):
        codes[y // 4][x // 2] |= _BRAILLE[x % 2][y % 4]
    return ["".join(map(chr, row)).rstrip("\u2800") for row in codes]


def _ascii(
    points: Sequence[tuple[int, float]], last: int, cells: int, height: int, place: Callable[[float], float]
) -> list[str]:
    signs = [[" "] * cells for _ in range(height)]
    for x, y in _dots(points, last, cells, height, place):
        signs[y][x] = "*"
    return ["".join(row) for row in signs]


def _dots(
    points: Sequence[tuple[int, float]], last: int, columns: int, rows: int, place: Callable[[float], float]
) -> Iterator[tuple[int, int]]:
    """Yield the dots (column, row from the top) of the curve, in each column from the lowest to the highest."""
    for x, low, high in _extents(points, (columns - 1) / last if last else 0.0):
        top, bottom = (round((rows - 1) * (1 - place(value))) for value in (high, low))
        yield from ((x, y) for y in range(top, bottom + 1))


def _extents(points: Sequence[tuple[int, float]], scale: float) -> Iterator[tuple[int, float, float]]:
    """Yield for each column that the polyline crosses its number, and the line's lowest and highest there.

    A column is as wide as it is far to the next, and the line is cut at its sides, so that neighbours meet.
    """
    found: dict[int, tuple[float, float]] = {}

    def touch(x: float, value: float) -> None:
        low, high = found.get(round(x), (value, value))
        found[round(x)] = min(low, value), max(high, value)

    previous: tuple[float, float] | None = None
    for index, value in points:
        x = index * scale
        if previous is not None:
            x0, value0 = previous
            for column in range(round(x0), round(x)):
                side = value0 + (value - value0) * min(max((column + 0.5 - x0) / (x - x0), 0.0), 1.0)
                touch(column, side)
                touch(column + 1, side)
        touch(x, value)
        previous = x, value
    for column in sorted(found):
        yield column, *found[column]
