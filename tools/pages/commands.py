"""The part of a command's page that comes from the command: its help, and every option."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Iterator

import click

from ckptdoctor.cli.command import Command
from ckptdoctor.cli.main import cli
from tools.pages.marking import fenced, prose, span

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_SECTION = re.compile(r"^([A-Z][\w ]*):\n((?:  .*\n?|\n)+)", re.MULTILINE)


def names() -> list[str]:
    """The names of all commands, in the order in which they are documented."""
    return cli.list_commands(_group())


def generated(name: str, text: str) -> str:
    """The page of a command with its help behind what was written by hand."""
    command = cli.get_command(_group(), name)
    assert isinstance(command, Command)
    context = click.Context(command, info_name=name, parent=_group(), terminal_width=80)
    parts = [text.rstrip(), "## Help", fenced(command.get_usage(context).removeprefix("Usage: "))]
    parts += [_marked(" ".join(each.split())) for each in re.split(r"\n\s*\n", inspect.cleandoc(command.help or ""))]
    for heading, options in command.grouped(context):
        parts += [f"## {heading}", _options(options, context)]
    parts += _sections(command.get_help(context), tuple(command.groups))
    return "\n\n".join(parts) + "\n"


def _group() -> click.Context:
    return click.Context(cli, info_name="ckptdoctor", terminal_width=80, **cli.context_settings)


def _options(options: Iterable[click.Parameter], context: click.Context) -> str:
    records = [each.get_help_record(context) for each in options]
    # a list of terms: a table with the longest of them has no room for words on a phone
    return "\n\n".join([f"{span(record[0])}\n: {_marked(record[1])}" for record in records if record is not None])


def _sections(shown: str, others: Collection[str]) -> Iterator[str]:
    """What a command explains behind its options, as it is printed; not the ``others``."""
    for found in _SECTION.finditer(shown):
        if found[1] not in others:
            yield f"## {found[1]}"
            yield fenced(inspect.cleandoc(found[2]))


def _marked(text: str) -> str:
    return prose(_OPTION.sub(lambda found: f"`{found[0]}`", text), (), "")
