"""Shows a run to whoever watches it: bars and a curve on a terminal, plain lines in a log."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from ckptdoctor.trainer.events import EpochDone, Event, Saved, Started, StepDone
from ckptdoctor.trainer.progress import phrases
from ckptdoctor.trainer.progress.bars import Bars
from ckptdoctor.trainer.progress.lines import Lines
from ckptdoctor.trainer.progress.metrics import Record
from ckptdoctor.trainer.progress.story import Story


class Terminal:
    """A listener. ``past`` are the records of metrics.jsonl before a resume. Call ``close`` whatever happens."""

    def __init__(self, console: Console, past: Iterable[Record] = ()) -> None:
        self._past = past
        self._clock = console.get_time
        on_screen = console.is_interactive and not console.is_dumb_terminal
        self._view = Bars(console) if on_screen else Lines(console)
        self._story: Story  # begins with the first event

    def __call__(self, event: Event) -> None:
        """Take note of one event, and show what is new."""
        if isinstance(event, StepDone):  # first, because there may be thousands in a second
            self._step(event)
        elif isinstance(event, Started):
            self._story = Story(event, self._clock())
            self._story.recall(self._past)
            self._view.start(self._story)
        elif isinstance(event, EpochDone):
            self._story.epoch(event, self._clock())
            self._view.epoch(event, self._story)
        elif isinstance(event, Saved):
            self._story.save(event)
            self._view.save(event)
        else:
            self._view.end(*phrases.end(event, self._story), self._story)

    def close(self) -> None:
        """Leave the terminal as it was found. May be called more than once."""
        self._view.close()

    def _step(self, event: StepDone) -> None:
        first = self._story.latest is None
        self._story.step(event)
        if first and self._story.started.config.network == "foonet":  # the network whose lesson is how a batch is split
            self._view.say(phrases.replicas(event, self._story.started.devices))
        self._view.tick(self._story)
