"""Defines the options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from ckptdoctor.cli import console
from ckptdoctor.cli.command import Choice, Command

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def files(context: click.Context, parameter: click.Parameter, word: str) -> list[CompletionItem]:
    """Return what a shell completes here: names of files and folders."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(word, type="file")]


def rule_codes(context: click.Context, parameter: click.Parameter, word: str) -> list[CompletionItem]:
    """Return what a shell completes here: codes of rules, and their names once a word begins like one."""
    from click.shell_completion import CompletionItem

    from ckptdoctor.diagnose.catalogue import all_rules

    before, comma, last = word.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{text}", help=about)
        for rule in all_rules()
        for text, about in ((rule.code, rule.name), (rule.name, rule.code))
        if (last or text is rule.code) and text.lower().startswith(last.lower())
    ]


def _hushed(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        before = console.only_problems.set(True)
        context.call_on_close(lambda: console.only_problems.reset(before))


color = click.option(
    "--color",
    type=Choice(["auto", "always", "never"]),
    default="auto",
    help="When to use colour; auto: on a terminal, unless NO_COLOR is set.  [default: auto]",
)
as_json = click.option(
    "--format", "style", type=Choice(["full", "json"]), default="full", show_default=True, help="Output format."
)
quiet = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_hushed,
    help="Print problems only: no progress, no notes, and nothing about what is fine.",
)


_REFERENCES = (
    click.option(
        "--model",
        metavar="MODULE:NAME",
        shell_complete=files,
        help="Compare with a model that your code builds; the code is run: nets:Net, "
        "'path/to/nets.py:build(num_classes=10)'. Or with a library's: timm:resnet50, torchvision:vit_b_16, "
        "transformers:BertModel. Missing arguments are taken from the file if Lightning saved them; arguments for the "
        "code's own command line follow --.",
    ),
    click.option(
        "--config",
        metavar="JSON",
        shell_complete=files,
        help="Compare with a Hugging Face config.json, its folder, or org/name in the local cache.",
    ),
    click.option(
        "--like",
        metavar="CKPT",
        shell_complete=files,
        help="Compare with the keys and shapes of another checkpoint, or of org/name in the local cache.",
    ),
)


def reference_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the ways to say what a checkpoint should fit: one option for each of ``diagnose.settings.SOURCES``.

    ``examine.targets.read_reference`` refuses more than one.
    """
    for option in reversed(_REFERENCES):
        command = option(command)
    return command


class WithModel(Command):
    """A command with ``--model``: what follows ``--`` is the command line of the model's own code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep these arguments for the time when the code is imported, and parse the others."""
        if "--" in args and any(each.partition("=")[0] == "--model" for each in args[: args.index("--")]):
            from ckptdoctor.checkpoint.process import ARGUMENTS

            at = args.index("--")
            args, theirs = args[:at], args[at + 1 :]
            ARGUMENTS.set(tuple(theirs))
        return super().parse_args(ctx, args)


def codes(name: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option of rule codes or names, separated by commas and repeatable; None when it is not given."""
    return click.option(name, multiple=True, metavar="CODES", callback=_split, shell_complete=rule_codes, help=text)


def _split(context: click.Context, option: click.Parameter, values: Iterable[str]) -> tuple[str, ...] | None:
    return tuple([code for value in values for code in value.split(",") if code.strip()]) if values else None
