"""The bars, and the table of finished epochs."""

from __future__ import annotations

import re

import pytest

from ckptdoctor.trainer.progress.bars import table_columns, table_heading, table_row
from ckptdoctor.trainer.progress.terminal import Terminal
from tests.trainer.progress.runs import Watched, config, epoch_done, saved, started, step


@pytest.mark.parametrize("ema", [False, True])
@pytest.mark.parametrize("width", range(1, 121, 3))
def test_rows_fit_into_any_width(width, ema):
    """Heading and rows are never wider than the terminal, as long as it holds the number of the epoch."""
    chosen = table_columns(config(ema=ema), width)
    lines = [table_heading(*chosen), table_row(epoch_done(config(ema=ema), 3), *chosen)]
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= max(width, 5)


@pytest.mark.parametrize(("width", "ema"), [(79, False), (80, True)])
def test_eighty_columns_hold_everything(width, ema):
    """On an ordinary terminal no figure is left out, with the EMA neither."""
    heading = table_heading(*table_columns(config(ema=ema), width))
    titles = ["train loss", "train acc", "test loss", "test acc", "images/s", "time", "lr", *(["EMA"] if ema else [])]
    assert all(title in heading for title in titles)


def test_the_test_accuracy_goes_last():
    """In 40 columns the test accuracy and the EMA stay; in 15 the test accuracy alone."""
    assert table_heading(*table_columns(config(ema=True), 40)).split() == ["epoch", "test", "acc", "EMA", "images/s"]
    assert table_heading(*table_columns(config(ema=True), 15)).split() == ["epoch", "test", "acc"]


def test_an_epoch_without_ema_leaves_its_place_empty():
    """The averaging may begin later than the training."""
    averaged = config(ema=True)
    chosen = table_columns(averaged, 100)
    with_it, without = (table_row(epoch_done(averaged, 2, **more), *chosen) for more in ({}, {"ema_accuracy": None}))
    assert "66.0 %" in with_it
    assert with_it.replace("66.0 %", "      ") == without


def left(watched):
    """What the two bars say of the time left: of the run, and of its epoch."""
    lines = [line for line in watched.emulator.screen.split("\n") if "━" in line]
    return tuple(re.split("[━╸╺]", line)[-1].strip() for line in lines)


def test_time_left_follows_the_speed():
    """After 5 of 80 steps, one every two seconds, 30 seconds are left of the epoch and 150 of the run."""
    watched = Watched(80, 24)
    terminal = Terminal(watched.console)
    watched.tell(terminal, [started(config()), step(config(), 1, 1)], pause=2)
    assert left(watched) == ("", "")
    watched.tell(terminal, [step(config(), 1, number) for number in range(2, 6)], pause=2)
    assert left(watched) == ("2:30 left", "0:30 left")


def test_tests_and_checkpoints_take_time_too():
    """Four steps in 2 seconds, and 6 seconds until the next epoch has one: two seconds a step in the mean."""
    watched = Watched(80, 24)
    terminal = Terminal(watched.console)
    watched.tell(terminal, [started(config()), *(step(config(), 1, number) for number in range(17, 21))], pause=0.5)
    watched.tell(terminal, [epoch_done(config(), 1), saved(1), step(config(), 2, 1)], pause=2.16666)
    assert left(watched) == ("1:58 left", "0:38 left")


@pytest.mark.parametrize("first", [(3, 1), (2, 13)], ids=["after an epoch", "within an epoch"])
def test_a_resumed_run_counts_its_own_time_only(first):
    """Steps that an earlier run did are done, but say nothing of this run's speed."""
    watched = Watched(80, 24)
    terminal = Terminal(watched.console)
    epoch, number = first
    watched.tell(terminal, [started(config(), epoch=epoch - 1)], pause=1)
    watched.tell(terminal, [step(config(), epoch, number + more) for more in range(3)], pause=1)
    rest = 20 - number - 2
    run = (4 - epoch) * 20 + rest
    assert left(watched) == (f"{run // 60}:{run % 60:02} left", f"0:{rest:02} left")
