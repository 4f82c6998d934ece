"""``ckptdoctor rules`` lists every rule."""

from __future__ import annotations

import click

from ckptdoctor.cli.command import Command
from ckptdoctor.cli.console import emit, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json
from ckptdoctor.diagnose.catalogue import all_rules
from ckptdoctor.rendering import rule_table

_EXAMPLES = (
    ("Every rule", "ckptdoctor rules"),
    ("The same for programs, with the whole documentation", "ckptdoctor rules --format json"),
)


@click.command("rules", cls=Command, examples=_EXAMPLES)
@as_json
def command(style: str) -> ExitStatus:
    """List every rule: code, name, severity, and what it finds."""
    rules = all_rules()
    emit(rule_table.as_json(rules) if style == "json" else rule_table.as_text(rules, width()))
    return ExitStatus.CLEAN
