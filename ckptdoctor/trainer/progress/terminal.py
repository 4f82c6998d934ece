"""A run is shown to whoever watches it: by bars and a curve on a terminal, by plain lines in a log."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console
from rich.text import Text

from ckptdoctor.trainer.events import EpochDone, RunEvent, Saved, Started, StepDone
from ckptdoctor.trainer.progress import phrases
from ckptdoctor.trainer.progress.bars import Bars
from ckptdoctor.trainer.progress.metrics import MetricsRecord
from ckptdoctor.trainer.progress.phrases import LabelledRows
from ckptdoctor.trainer.progress.story import Story
from ckptdoctor.trainer.progress.text import fitted


class LastingConsole(Console):
    """A console that falls silent when nobody reads any more (``| head``), where rich would end the process."""

    def on_broken_pipe(self) -> None:
        """Discard output from now on: the results of a run are in its folder."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


def console(stream: TextIO | None) -> Console:
    """Return a console on ``stream`` (None: stdout) that moves the cursor on real terminals only.

    Without being told, rich takes any stream for a terminal where FORCE_COLOR is set, as it is on many build servers.
    """
    file = sys.stdout if stream is None else stream
    return LastingConsole(file=file, force_interactive=None if file.isatty() else False)


class Lines:
    """A header, one line an epoch, one line a checkpoint, and the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._epochs = 0

    def start(self, story: Story) -> None:
        """Say what runs."""
        self._epochs = story.started.config.epochs
        self.say(f"{label}: {text}" for label, text in phrases.header(story.started))

    def tick(self, story: Story) -> None:
        """A log does not report single steps."""

    def epoch(self, event: EpochDone, story: Story) -> None:
        """Say how an epoch went."""
        self.say([phrases.epoch(event, story.started.config)])

    def save(self, event: Saved) -> None:
        """Say that there is a checkpoint."""
        self.say([phrases.checkpoint(event)])

    def end(self, headline: str, rows: LabelledRows, story: Story) -> None:
        """Say what was reached, and what to do next."""
        self.say([headline, *(f"{label}: {text}" for label, text in rows)])

    def say(self, lines: Iterable[str]) -> None:
        """Write lines as they are, however long."""
        for line in lines:
            self._console.print(Text(fitted(line, self._console.encoding)), soft_wrap=True)

    def close(self) -> None:
        """Nothing is left open."""


class Terminal:
    """A listener. ``past`` are the records of metrics.jsonl before a resume. Call ``close`` whatever happens."""

    def __init__(self, console: Console, past: Iterable[MetricsRecord] = ()) -> None:
        self._past = past
        self._clock = console.get_time
        on_screen = console.is_interactive and not console.is_dumb_terminal
        self._view = Bars(console) if on_screen else Lines(console)
        self._story: Story  # begins with the first event

    def __call__(self, event: RunEvent) -> None:
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
        if event.work:
            self._view.say(event.work)
        elif first and self._story.started.config.network == "foonet":  # whose lesson is how a batch is split
            self._view.say(phrases.replicas(event, self._story.started.devices))
        self._view.tick(self._story)
