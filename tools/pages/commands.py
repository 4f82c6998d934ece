"""The part of a command's page that comes from the command: its help, and every option."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ckptdoctor.cli.main import cli


def helps() -> Iterator[tuple[str, str]]:
    """The names of all commands, each with what its ``--help`` prints on a terminal of 80 columns."""
    group = click.Context(cli, info_name="ckptdoctor", terminal_width=80, **cli.context_settings)
    for name in cli.list_commands(group):
        command = cli.get_command(group, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=group, terminal_width=80)
        yield name, command.get_help(context)


def generated(name: str, text: str) -> str:
    """The page of a command with its help behind what was written by hand."""
    return f"{text.rstrip()}\n\n## Help\n\n```console\n$ ckptdoctor {name} --help\n{dict(helps())[name]}\n```\n"
