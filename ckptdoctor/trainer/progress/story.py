"""The story of a run so far, gathered from its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ckptdoctor.trainer.events import EpochDone, Saved, Started, StepDone
from ckptdoctor.trainer.progress.metrics import MetricsRecord, figure


@dataclass
class Story:
    """The state that later events build upon."""

    started: Started
    epoch_clock: float
    """When this run began, or its last epoch ended."""
    epochs: dict[int, float] = field(default_factory=dict)
    """The test accuracy after each epoch, of the part before a resume too where it is known."""
    saved: list[str] = field(default_factory=list)
    """The folders of all checkpoints, in the order in which they were written."""
    seconds: list[float] = field(default_factory=list)
    """The training time of each epoch of this run."""
    latest: StepDone | None = None

    def recall(self, past: Iterable[MetricsRecord]) -> None:
        """Take over what the records of metrics.jsonl say of the part before a resume."""
        for record in past:
            accuracy = figure(record, "test_accuracy")
            if record["event"] == "EpochDone" and accuracy is not None:
                self.epochs[record["epoch"]] = accuracy
            elif record["event"] == "Saved":
                self.saved.append(str(record.get("path")))

    def step(self, event: StepDone) -> None:
        """Count one more step."""
        self.latest = event

    def epoch(self, event: EpochDone, now: float) -> None:
        """Count one more epoch, done and tested."""
        self.epochs[event.epoch] = event.test_accuracy
        self.seconds.append(event.seconds)
        self.epoch_clock = now

    def save(self, event: Saved) -> None:
        """Count one more checkpoint, which is complete."""
        self.saved.append(event.path)

    @property
    def best(self) -> tuple[int, float] | None:
        """The first epoch with the highest test accuracy, and that accuracy."""
        known = [(value, -epoch) for epoch, value in self.epochs.items() if value == value]  # NaN is not itself
        value, epoch = max(known, default=(0.0, 0))
        return (-epoch, value) if known else None

    @property
    def at_end_of_epoch(self) -> bool:
        """Whether the last step of an epoch is done; what follows is its test."""
        return self.latest is not None and self.latest.step == self.started.steps
