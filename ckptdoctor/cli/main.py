"""Knows which commands there are, and parses the command line."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from ckptdoctor.checkpoint import process
from ckptdoctor.cli.command import SHORT_HELP, usage_error, write_examples
from ckptdoctor.cli.console import print_error
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.failures import status_of, tell_interrupt
from ckptdoctor.wording import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Commands by name in groups, each the attribute ``command`` of its module."""

    def __init__(self, *args: Any, groups: dict[str, dict[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups
        self.modules = {name: module for group in groups.values() for name, module in group.items()}

    def for_paths(self) -> str:
        """Return the command that is meant by a path alone: to look inside on a terminal, to check elsewhere."""
        terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        return "browse" if terminal else "check"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without any argument on a terminal, the checkpoints of this folder to choose from."""
        return super().parse_args(ctx, args or (["browse"] if self.for_paths() == "browse" else []))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order in which they are documented."""
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now; None when there is none of this name."""
        if cmd_name not in self.modules:
            return None
        command = import_module(self.modules[cmd_name]).command
        assert isinstance(command, click.Command)
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, and below them the options of none of them."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the two commands that most people need, as examples."""
        write_examples(EXAMPLES, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands below the headings of their groups, in one column."""
        longest = max(map(len, self.modules))
        for heading, names in self.groups.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(f"{name:{longest}}", each.get_short_help_str(formatter.width)) for name, each in commands if each]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands, or else files: a path alone is a command line, too."""
        from click.shell_completion import CompletionItem

        found = super().shell_complete(ctx, incomplete)
        return found or [CompletionItem(incomplete, type="file")]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C ends it in one sentence, which it may have brought along."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            return tell_interrupt(interrupt)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that ``args`` begin with; for a path that of ``for_paths``, which says what is wrong."""
        if args and args[0] not in self.modules and _is_path(args[0]):
            name = self.for_paths()
            return name, self.get_command(ctx, name), args
        if args and args[0] not in self.modules and not args[0].startswith("-"):
            raise click.UsageError(f"No such command '{args[0]}'.{_instead(args[0], self.modules)}", ctx)
        return super().resolve_command(ctx, args)


def _instead(word: str, commands: Iterable[str]) -> str:
    """Return the command, file or page of a rule that an unknown word may stand for; "" where it is like none."""
    if word in ("help", "version"):
        return f" Did you mean '--{word}'?"
    offer = did_you_mean(word, commands, quote="'") or did_you_mean(word, _entries_here(), quote="'")
    if offer:
        return offer
    from ckptdoctor.rules.registry import find_rule

    return f" It is a rule: ckptdoctor explain {word}" if find_rule(word) is not None else ""


def _entries_here() -> list[str]:
    try:
        return os.listdir()
    except OSError:  # a folder that is not ours to read, or is gone
        return []


def _is_path(word: str) -> bool:
    """Return whether it is one or, mistyped, was meant for one: no command has a dot or a slash in it."""
    return os.path.exists(word) or any(mark in word for mark in "./\\")


EXAMPLES = (
    ("See what is wrong with a checkpoint", "ckptdoctor check model.pt"),
    ("Repair it into a new file", "ckptdoctor fix model.pt"),
)
_GROUPS = {
    "Find out": {
        "check": "ckptdoctor.cli.check",
        "explain": "ckptdoctor.cli.explain",
        "diff": "ckptdoctor.cli.diff",
        "show": "ckptdoctor.cli.show",
        "browse": "ckptdoctor.cli.browse",
        "report": "ckptdoctor.cli.report",
        "rules": "ckptdoctor.cli.rules",
    },
    "Repair": {
        "fix": "ckptdoctor.cli.fix",
        "salvage": "ckptdoctor.cli.salvage",
        "graft": "ckptdoctor.cli.graft",
        "rebuild": "ckptdoctor.cli.rebuild",
        "undo": "ckptdoctor.cli.undo",
    },
    "Change": {
        "convert": "ckptdoctor.cli.convert",
        "merge": "ckptdoctor.cli.merge",
    },
    "Keep": {
        "seal": "ckptdoctor.cli.seal",
        "verify": "ckptdoctor.cli.verify",
        "latest": "ckptdoctor.cli.latest",
        "prune": "ckptdoctor.cli.prune",
        "audit": "ckptdoctor.cli.audit",
        "watch": "ckptdoctor.cli.watch",
    },
    "Practise": {"train": "ckptdoctor.cli.train"},
    "Set up": {"setup": "ckptdoctor.cli.setup"},
}
COMMANDS = {name: module for group in _GROUPS.values() for name, module in group.items()}


def _version(context: click.Context, option: click.Parameter, value: bool) -> None:
    """Print the versions of ckptdoctor, Python and torch, which is not imported for it."""
    if not value or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "not installed" if find_spec("torch") is None else "of unknown version"
    click.echo(f"ckptdoctor, version {version('ckptdoctor')}")
    click.echo(f"Python {'.'.join(map(str, sys.version_info[:3]))}, torch {torch}")
    context.exit()


@click.group(cls=LazyGroup, groups=_GROUPS, context_settings=SHORT_HELP)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Print the versions of ckptdoctor, Python and torch.",
)
# torch.distributed.launch says it ahead of the command's own words; what counts is LOCAL_RANK, which it sets as well
@click.option("--local-rank", "--local_rank", hidden=True, expose_value=False)
def cli() -> None:
    """Open a checkpoint without running it, see what is wrong, and repair it losslessly.

    A path alone opens the browser on a terminal, and is checked elsewhere: ckptdoctor model.pt. On a terminal a folder,
    or no path at all, shows the checkpoints to choose from.
    """


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
    """Return what is wrong with the command line, and what to type instead. It may quote a hostile file name."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # of click 8.2; before, it is no error
        return error.format_message().rstrip("\n")
    files = [each for each in arguments if each.startswith("-") and os.path.lexists(each)]
    if isinstance(error, click.NoSuchOption) and files:
        return f"{usage_error(error)}\nA file has this name: write ./{files[0]}"
    return usage_error(error)


def _parsed(arguments: Sequence[str] | None) -> int:
    try:
        return int(cli.main(args=arguments, prog_name="ckptdoctor", standalone_mode=False) or ExitStatus.CLEAN)
    except click.ClickException as error:
        print_error(_shown(error, sys.argv[1:] if arguments is None else arguments))
        return ExitStatus.TROUBLE
    except click.Abort:  # while the arguments were read
        return ExitStatus.INTERRUPTED
