"""Finished epochs as the rows of a table that is as wide as the terminal allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.events import EpochDone
from ckptdoctor.trainer.progress.text import percent


@dataclass(frozen=True)
class Column:
    """One figure of an epoch."""

    title: str
    width: int
    rank: int
    """Where there is not room for all, the highest ranks go first."""
    text: Callable[[EpochDone], str]


def columns(config: Config, width: int) -> tuple[Sequence[Column], int]:
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


def heading(chosen: Sequence[Column], gap: int) -> str:
    """The titles over the figures."""
    return (" " * gap).join(f"{column.title:>{column.width}}" for column in chosen)


def row(event: EpochDone, chosen: Sequence[Column], gap: int) -> str:
    """The figures of one epoch."""
    return (" " * gap).join(f"{column.text(event):>{column.width}}" for column in chosen)


def _all(config: Config) -> list[Column]:
    number = len(f"{config.epochs}")
    ema = [Column("EMA", 7, 2, lambda event: "" if event.ema_accuracy is None else percent(event.ema_accuracy))]
    return [
        Column("epoch", max(5, 2 * number + 1), 0, lambda event: f"{event.epoch:>{number}}/{config.epochs}"),
        Column("train loss", 10, 7, lambda event: f"{event.train_loss:.4f}"),
        Column("train acc", 9, 4, lambda event: percent(event.train_accuracy)),
        Column("test loss", 9, 6, lambda event: f"{event.test_loss:.4f}"),
        Column("test acc", 8, 1, lambda event: percent(event.test_accuracy)),
        *(ema if config.ema else []),
        Column("images/s", 8, 3, lambda event: f"{event.images_per_second:,.0f}"),
        Column("time", 7, 5, lambda event: f"{event.seconds:.1f} s"),
        Column("lr", 7, 8, lambda event: f"{event.learning_rate:.3g}"),
    ]


def _needed(chosen: Sequence[Column], gap: int) -> int:
    return sum(column.width for column in chosen) + gap * (len(chosen) - 1)
