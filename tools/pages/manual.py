"""The manual page, of what the help of each command says: ``man ckptdoctor``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from ckptdoctor import __version__
from ckptdoctor.cli.command import Command
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.main import cli
from ckptdoctor.filters.words import RULES, WORDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ckptdoctor.1"

_FILES = (
    ("pyproject.toml, ckptdoctor.toml", "Settings of a project: the table [tool.ckptdoctor], or the same keys alone."),
)
_ENVIRONMENT = (
    ("NO_COLOR", "Turns colours off."),
    ("COLUMNS", "Width of what is printed on a terminal."),
    ("TMPDIR", "Where compressed files are unpacked."),
    ("HF_TOKEN", "Access to private files of the Hugging Face Hub."),
    ("CKPTDOCTOR_TRACEBACK", "Set to 1: print the whole traceback of a bug in ckptdoctor."),
)


def page() -> str:
    """The whole page, in the macros of man(7)."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    context = click.Context(cli, info_name="ckptdoctor", terminal_width=80, **cli.context_settings)
    yield '.\\" Made by tools/readme.py: change the help of the commands instead'
    yield f'.TH CKPTDOCTOR 1 "" "ckptdoctor {__version__}" "User Commands"'
    yield from (".SH NAME", "ckptdoctor \\- open a checkpoint without running it, see what is wrong, and repair it")
    yield from (".SH SYNOPSIS", ".B ckptdoctor", ".I COMMAND", "[\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]")
    yield from (".br", ".B ckptdoctor", "[\\fIPATH\\fR]")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(cli.help or "")
    for heading, names in cli.groups.items():
        yield f".SH {_plain(heading).upper()}"
        for name in names:
            yield from _command(name, context)
    yield ".SH EXIT STATUS"
    source = inspect.getsource(ExitStatus)
    for number, meaning in re.findall(r'= (\d+)\n    """(.*?)"""', source, re.DOTALL):
        yield from _term(number, " ".join(meaning.split()).replace("``", ""))
    yield ".SH FILES"
    yield from (line for term in _FILES for line in _term(*term))
    yield ".SH ENVIRONMENT"
    yield from (line for term in _ENVIRONMENT for line in _term(*term))


def _command(name: str, context: click.Context) -> Iterator[str]:
    command = cli.get_command(context, name)
    assert isinstance(command, Command)
    own = click.Context(command, info_name=name, parent=context, terminal_width=80)
    yield f".SS {_plain(' '.join(command.get_usage(own).removeprefix('Usage: ').split()))}"
    yield from _paragraphs(command.help or "")
    for heading, options in command.grouped(own):
        records = [record for each in options if (record := each.get_help_record(own)) is not None]
        if len(command.groups) > 1:
            yield from (".PP", f".I {_plain(heading)}")
        yield from (line for record in records for line in _term(*record))
    if name == "show":
        yield from (".PP", ".I Filter", *_paragraphs(RULES))
        yield from (line for word in WORDS for line in _term(*word))
    yield from (".PP", ".I Examples")
    for meaning, typed in command.examples:
        yield from (".PP", f"{_plain(meaning)}:", ".PP", ".nf", f".RS 4\n{_plain(typed)}\n.RE", ".fi")


def _term(term: str, meaning: str) -> Iterable[str]:
    return ".TP", f"\\fB{_plain(term)}\\fR", _plain(" ".join(meaning.split()))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        yield from (".PP", _plain(" ".join(paragraph.split())))


def _plain(text: str) -> str:
    """Text that no macro or escape of roff is made of, in ASCII; its hyphens are those that are typed."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join([each if each.isascii() else f"\\[u{ord(each):04X}]" for each in escaped])
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
