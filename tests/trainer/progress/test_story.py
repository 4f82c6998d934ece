"""The story of a run so far."""

from __future__ import annotations

from ckptdoctor.trainer.progress.story import Story
from tests.trainer.progress.runs import config, epoch_done, saved, started


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
