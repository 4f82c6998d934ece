"""The part of a terminal that is drawn anew while a run goes on: two bars, the figures of now, and the curve."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ckptdoctor.trainer.progress import phrases
from ckptdoctor.trainer.progress.curve import draw
from ckptdoctor.trainer.progress.story import Story
from ckptdoctor.trainer.progress.text import duration, encodable, percent, visible

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


def fitted(text: str, encoding: str) -> str:
    """``text`` with nothing that a terminal could obey or an encoding refuse."""
    return encodable(visible(text), encoding)


def _bars(story: Story, now: float) -> Table:
    """How far the run is, and how far its epoch."""
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
        loss, accuracy, speed = f"loss {step.loss:.4f}", percent(step.accuracy), f"{step.images_per_second:,.0f}"
        full = f"{loss} · accuracy {accuracy} · {speed} images/s"
        yield full if len(full) <= width else f"{loss} · {accuracy} · {speed}/s"
        full = phrases.batches(step.replica_batches, story.started.devices)
        yield full if len(full) <= width else full.partition(" on ")[0]
    if story.saved:
        yield f"saved {story.saved[-1]}"


def _line(text: str) -> Text:
    """One row, whatever its length: what wrapped would move everything below it."""
    return Text(text, no_wrap=True, overflow="crop")
