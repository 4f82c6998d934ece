"""Options that several commands share."""

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


def codes(name: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that takes rule codes or names, separated by commas, as often as wanted; None when it is not given."""
    return click.option(name, multiple=True, metavar="CODES", callback=_split, help=text)


def _split(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...] | None:
    return tuple([code for value in values for code in value.split(",") if code.strip()]) if values else None
