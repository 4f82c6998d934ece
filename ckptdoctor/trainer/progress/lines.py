"""A run as plain lines, for logs: no control characters, nothing that is drawn twice."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from ckptdoctor.trainer.events import EpochDone, Saved
from ckptdoctor.trainer.progress import phrases
from ckptdoctor.trainer.progress.phrases import Rows
from ckptdoctor.trainer.progress.screen import fitted
from ckptdoctor.trainer.progress.story import Story


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
        """A step is no news for a log."""

    def epoch(self, event: EpochDone, story: Story) -> None:
        """Say how an epoch went."""
        self.say([phrases.epoch(event, story.started.config)])

    def save(self, event: Saved) -> None:
        """Say that there is a checkpoint."""
        self.say([phrases.checkpoint(event)])

    def end(self, headline: str, rows: Rows, story: Story) -> None:
        """Say what was reached, and what to do next."""
        self.say([headline, *(f"{label}: {text}" for label, text in rows)])

    def say(self, lines: Iterable[str]) -> None:
        """Write lines as they are, however long."""
        for line in lines:
            self._console.print(Text(fitted(line, self._console.encoding)), soft_wrap=True)

    def close(self) -> None:
        """Nothing is left open."""
