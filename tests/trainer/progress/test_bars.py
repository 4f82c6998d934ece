"""The table of finished epochs."""

from __future__ import annotations

import pytest

from ckptdoctor.trainer.progress.bars import table_columns, table_heading, table_row
from tests.trainer.progress.runs import config, epoch_done


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
