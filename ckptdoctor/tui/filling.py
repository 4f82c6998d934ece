"""Screens whose contents are still being read when they open: keys wait for these, but for those that leave."""

from __future__ import annotations

import asyncio
from typing import Any

from ckptdoctor.tui.background import Background

# the ids of keys that need no contents, and so are never kept waiting for them
BACK = "back"
AT_ONCE = frozenset({BACK, "quit", "how-to-leave", "help", "copy", "commands"})


class Filling(Background):
    """Mixed into such screens. ``filled`` is set when the contents are there, or will never be."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.filled = asyncio.Event()

    def complain(self, sentence: str) -> None:
        """Say why there will be no more contents."""
        self.filled.set()
        super().complain(sentence)

    def on_unmount(self) -> None:
        """Nobody needs to wait for a screen that has gone."""
        self.filled.set()
