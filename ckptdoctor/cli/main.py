"""Knows which commands there are, and parses the command line."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from io import StringIO
from typing import Any

import click

from ckptdoctor.checkpoint import process
from ckptdoctor.cli.console import narrate
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.failures import status_of, tell_interrupt
from ckptdoctor.cli.options import SHORT_HELP


class LazyGroup(click.Group):
    """Commands by name, each the attribute ``command`` of its module."""

    def __init__(self, *args: Any, modules: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules = modules

    def for_paths(self) -> str:
        """The command that is meant where a path stands alone: to look inside on a terminal, to check elsewhere."""
        terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        return "browse" if terminal else "check"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without any argument on a terminal, the checkpoints of this folder to choose from."""
        return super().parse_args(ctx, args or (["browse"] if self.for_paths() == "browse" else []))

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
            return tell_interrupt(interrupt)

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


COMMANDS = {
    "check": "ckptdoctor.cli.check",
    "browse": "ckptdoctor.cli.browse",
    "fix": "ckptdoctor.cli.fix",
    "show": "ckptdoctor.cli.show",
    "diff": "ckptdoctor.cli.diff",
    "report": "ckptdoctor.cli.report",
    "convert": "ckptdoctor.cli.convert",
    "merge": "ckptdoctor.cli.merge",
    "salvage": "ckptdoctor.cli.salvage",
    "graft": "ckptdoctor.cli.graft",
    "explain": "ckptdoctor.cli.explain",
    "rules": "ckptdoctor.cli.rules",
    "train": "ckptdoctor.cli.train",
}


@click.group(cls=LazyGroup, modules=COMMANDS, context_settings=SHORT_HELP)
@click.version_option(package_name="ckptdoctor")
# torch.distributed.launch says it ahead of the command's own words; what counts is LOCAL_RANK, which it sets as well
@click.option("--local-rank", "--local_rank", hidden=True, expose_value=False)
def cli() -> None:
    """Open a checkpoint without running it, say what is wrong, and repair it losslessly."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (None: ``sys.argv``) and end with SystemExit and an ``ExitStatus``."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (None: ``sys.argv``); returns the exit status."""
    process.collect_seldom()
    # where a command imports torch, and torch cannot use the NumPy that is installed, it says so on stderr
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy", category=UserWarning)
    return status_of(lambda: _parsed(arguments))


def _shown(error: click.ClickException, arguments: Sequence[str]) -> str:
    """The text that click prints of its own error: usage, the error, what to try. It may quote a hostile file name."""
    text = StringIO()
    error.show(file=text)
    files = [each for each in arguments if each.startswith("-") and os.path.lexists(each)]
    if isinstance(error, click.NoSuchOption) and files:
        text.write(f"A file is called so: it is meant by ./{files[0]}")
    return text.getvalue().rstrip("\n")


def _parsed(arguments: Sequence[str] | None) -> int:
    try:
        return int(cli.main(args=arguments, prog_name="ckptdoctor", standalone_mode=False) or ExitStatus.CLEAN)
    except click.ClickException as error:
        narrate(_shown(error, sys.argv[1:] if arguments is None else arguments))
        return ExitStatus.TROUBLE
    except click.Abort:  # while the arguments were read
        return ExitStatus.INTERRUPTED
