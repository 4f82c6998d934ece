"""Writes the parts of README.md that come from the code: ``python tools/readme.py``; with ``--check`` only compares."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click

from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.main import cli
from ckptdoctor.engine.catalogue import all_rules
from ckptdoctor.engine.diagnose import check
from ckptdoctor.report import rule_table
from ckptdoctor.report.full import file_report

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
SAMPLE = "sample_ckpts/sick/N401-module-prefix.pt"

_WIDTH = 100  # columns of the terminal in the screenshot
_BLOCK = re.compile(r"(<!-- begin: (\w+) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)


def screenshot() -> str:
    """What ``check`` prints of a sample on a terminal, with the one figure that changes from run to run left out."""
    report = replace(check(str(ROOT / SAMPLE)), path=SAMPLE, seconds=0.01)
    return f"```console\n$ ckptdoctor check {SAMPLE}\n{file_report(report, width=_WIDTH)}\n```"


def commands() -> str:
    """The help text of every command."""
    return "\n\n".join(f"```console\n$ ckptdoctor {name} --help\n{text}\n```" for name, text in _helps())


def _helps() -> Iterator[tuple[str, str]]:
    group = click.Context(cli, info_name="ckptdoctor", terminal_width=80, **cli.context_settings)
    for name in cli.list_commands(group):
        command = cli.get_command(group, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=group, terminal_width=80)
        yield name, command.get_help(context)


def statuses() -> str:
    """The exit statuses with their meanings, from the docstrings of ``ExitStatus``."""
    source = inspect.getsource(ExitStatus)
    meanings = re.findall(r'= (\d+)\n    """(.*?)"""', source, re.DOTALL)
    assert len(meanings) == len(ExitStatus)
    return "\n".join(f"- **{number}** {' '.join(text.split())}" for number, text in meanings)


def rules() -> str:
    """The table of rules."""
    return rule_table.as_markdown(all_rules())


BLOCKS: dict[str, Callable[[], str]] = {
    "screenshot": screenshot,
    "commands": commands,
    "statuses": statuses,
    "rules": rules,
}


def generated(text: str) -> str:
    """``text`` with every marked block made anew."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]]()}\n\n{match[3]}", text)


def main() -> None:
    """Write the README, or with ``--check`` say whether it is what would be written."""
    before = README.read_text(encoding="utf-8")
    after = generated(before)
    if "--check" not in sys.argv[1:]:
        README.write_text(after, encoding="utf-8")
    elif before != after:
        sys.exit("README.md is not what the code says: run python tools/readme.py")


if __name__ == "__main__":
    main()
