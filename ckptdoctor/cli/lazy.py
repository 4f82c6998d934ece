"""A command group that imports a command only when it is run: start-up is what most people wait for."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from ckptdoctor.cli.console import narrate
from ckptdoctor.cli.exit_status import ExitStatus


class LazyGroup(click.Group):
    """Commands by name, each the attribute ``command`` of its module."""

    def __init__(self, *args: Any, modules: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules = modules

    def for_paths(self) -> str:
        """The command that is meant where a path stands alone: to look inside on a terminal, to check elsewhere."""
        terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        return "browse" if terminal else "check"

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which they are documented."""
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None when there is none of this name."""
        if cmd_name not in self.modules:
            return None
        command = import_module(self.modules[cmd_name]).command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C ends it in one sentence, which it may have brought along."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            behind = "\n" if sys.stderr.isatty() else ""  # the terminal has written ^C
            narrate(f"{behind}{str(interrupt) or 'interrupted'}")
            return ExitStatus.INTERRUPTED

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begin with; for a path that of ``for_paths``, which says what is wrong with it."""
        if args and args[0] not in self.modules and _is_path(args[0]):
            name = self.for_paths()
            return name, self.get_command(ctx, name), args
        return super().resolve_command(ctx, args)


def _is_path(word: str) -> bool:
    """Whether it is one or, mistyped, was meant for one: no command has a dot or a slash in it."""
    return os.path.exists(word) or any(mark in word for mark in "./\\")
