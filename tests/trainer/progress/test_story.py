"""The story of a run so far."""

from __future__ import annotations

import pytest

from ckptdoctor.trainer.progress.story import Story
from tests.trainer.progress.runs import config, epoch_done, saved, started, step


def test_time_left_follows_the_mean_speed():
    """After 5 of 80 steps in 10 seconds, 30 are left of the epoch and 150 of the run."""
    story = Story(started(config()), 100.0)
    assert story.left(105.0) is None
    assert story.epoch_left(105.0) is None
    for number in range(1, 6):
        story.step(step(config(), 1, number))
    assert story.left(110.0) == pytest.approx(150)
    assert story.epoch_left(110.0) == pytest.approx(30)


def test_a_new_epoch_has_a_speed_of_its_own():
    """The time of an epoch counts from the end of the one before; the time of the run counts its tests too."""
    story = Story(started(config()), 0.0)
    story.step(step(config(), 1, 1))
    story.step(step(config(), 1, 20))
    assert story.at_end_of_epoch
    story.epoch(epoch_done(config(), 1), 40.0)
    assert story.epoch_left(41.0) is None
    story.step(step(config(), 2, 4))
    assert story.epoch_left(42.0) == pytest.approx(2 / 4 * 16)
    assert story.left(42.0) == pytest.approx(42 / 24 * 56)


@pytest.mark.parametrize(("first", "done"), [((3, 1), 41), ((2, 13), 33)], ids=["after an epoch", "within an epoch"])
def test_a_resumed_run_counts_its_own_time_only(first, done):
    """Steps that an earlier run did are done, but say nothing of this run's speed."""
    story = Story(started(config(), epoch=first[0] - 1), 0.0)
    story.step(step(config(), *first))
    assert (story.done, story.total) == (done, 80)
    assert story.left(2.0) == pytest.approx(2 * (80 - done))
    assert story.epoch_left(2.0) == pytest.approx(2 * (20 - first[1]))


def test_the_best_epoch_is_the_first_of_equals():
    """NaN is never the best, and of equal accuracies the earlier one counts."""
    story = Story(started(config()), 0.0)
    assert story.best is None
    for epoch, accuracy in enumerate((0.5, float("nan"), 0.7, 0.7), 1):
        story.epoch(epoch_done(config(), epoch, test_accuracy=accuracy), 0.0)
    assert story.best == (3, 0.7)


def test_the_part_before_a_resume_is_recalled():
    """Accuracies and checkpoints come back from the records; what is no number does not."""
    story = Story(started(config(), epoch=2), 0.0)
    story.recall(
        [
            {"event": "Started"},
            {"event": "EpochDone", "epoch": 1, "test_accuracy": 0.3},
            {"event": "Saved", "path": "run/epoch-0001"},
            {"event": "EpochDone", "epoch": 2, "test_accuracy": None},
        ]
    )
    story.save(saved(3))
    assert story.epochs == {1: 0.3}
    assert story.saved == ["run/epoch-0001", "run/epoch-0003"]
