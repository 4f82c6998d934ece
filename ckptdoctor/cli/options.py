"""Defines the options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

# context settings of every command, so that its help is the same whether it is run through the group or by itself
SHORT_HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}

color = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Colour: on a terminal only (auto, which also obeys NO_COLOR), always, or never.",
)
as_json = click.option(
    "--format", "style", type=click.Choice(["full", "json"]), default="full", show_default=True, help="How to print it."
)


_REFERENCES = (
    click.option(
        "--model",
        metavar="MODULE:NAME",
        help="Compare with a model of your code, which is run: nets:Net, 'path/to/nets.py:build(num_classes=10)'; "
        "or of a library: timm:resnet50, torchvision:vit_b_16, transformers:BertModel. Arguments that are not given "
        "come from the file where Lightning wrote it; what the code reads from the command line stands behind --.",
    ),
    click.option(
        "--config",
        metavar="JSON",
        help="Compare with a Hugging Face config.json, the folder of one, or org/name in the local cache.",
    ),
    click.option(
        "--like",
        metavar="CKPT",
        help="Compare keys and shapes with those of another checkpoint, or of org/name in the local cache.",
    ),
)


def reference_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The ways to say what a checkpoint should fit: one option for each of ``diagnose.settings.SOURCES``.

    ``examine.targets.read_reference`` refuses more than one.
    """
    for option in reversed(_REFERENCES):
        command = option(command)
    return command


class WithModel(click.Command):
    """A command with ``--model``: what stands behind ``--`` is the command line of the model's own code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep these arguments for the time when the code is imported, and parse the others."""
        if "--" in args and any(each.partition("=")[0] == "--model" for each in args[: args.index("--")]):
            from ckptdoctor.checkpoint.process import ARGUMENTS

            at = args.index("--")
            args, theirs = args[:at], args[at + 1 :]
            ARGUMENTS.set(tuple(theirs))
        return super().parse_args(ctx, args)


def codes(name: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that takes rule codes or names, separated by commas, as often as wanted; None when it is not given."""
    return click.option(name, multiple=True, metavar="CODES", callback=_split, help=text)


def _split(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...] | None:
    return tuple([code for value in values for code in value.split(",") if code.strip()]) if values else None
