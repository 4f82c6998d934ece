"""The story of a run so far, gathered from its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ckptdoctor.trainer.events import EpochDone, Saved, Started, StepDone
from ckptdoctor.trainer.progress.metrics import MetricsRecord, figure


@dataclass
class Story:
    """The state that later events build upon. ``clock`` and every ``now`` are seconds on the same clock."""

    started: Started
    clock: float
    """When this run began: whatever time its first step takes counts."""
    epochs: dict[int, float] = field(default_factory=dict)
    """The test accuracy after each epoch, of the part before a resume too where it is known."""
    saved: list[str] = field(default_factory=list)
    """The folders of all checkpoints, in the order in which they were written."""
    seconds: list[float] = field(default_factory=list)
    """The training time of each epoch of this run."""
    latest: StepDone | None = None

    def __post_init__(self) -> None:
        # the last step that is not this run's, counted over all epochs, and the one before this epoch's time is taken
        self._before_run = self._before_epoch = self.started.epoch * self.started.steps
        self.epoch_clock = self.clock

    def recall(self, past: Iterable[MetricsRecord]) -> None:
        """Take over what the records of metrics.jsonl say of the part before a resume."""
        for record in past:
            accuracy = figure(record, "test_accuracy")
            if record["event"] == "EpochDone" and accuracy is not None:
                self.epochs[record["epoch"]] = accuracy
            elif record["event"] == "Saved":
                self.saved.append(str(record.get("path")))

    def step(self, event: StepDone) -> None:
        """One more step is done."""
        if self.latest is None:  # a run that goes on in mid-epoch does not begin with step 1
            self._before_run = self._before_epoch = (event.epoch - 1) * self.started.steps + event.step - 1
        self.latest = event

    def epoch(self, event: EpochDone, now: float) -> None:
        """One more epoch is done, and tested."""
        self.epochs[event.epoch] = event.test_accuracy
        self.seconds.append(event.seconds)
        self._before_epoch = event.epoch * self.started.steps
        self.epoch_clock = now

    def save(self, event: Saved) -> None:
        """One more checkpoint is complete."""
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

    @property
    def done(self) -> int:
        """The number of steps that are done, those of earlier runs included."""
        if self.latest is None:
            return self._before_run
        return (self.latest.epoch - 1) * self.started.steps + self.latest.step

    @property
    def total(self) -> int:
        """The number of steps of the whole run."""
        return self.started.config.epochs * self.started.steps

    def left(self, now: float) -> float | None:
        """Seconds until the run is over, at its mean speed so far, tests included; None before its first step."""
        done = self.done - self._before_run
        return (now - self.clock) / done * (self.total - self.done) if done > 0 else None

    def epoch_left(self, now: float) -> float | None:
        """Seconds until the last step of this epoch; None before its first."""
        done = self.done - self._before_epoch
        if self.latest is None or done <= 0:
            return None
        return (now - self.epoch_clock) / done * (self.started.steps - self.latest.step)
