"""``ckptdoctor explain``: the page of one rule."""

from __future__ import annotations

import click

from ckptdoctor.cli.console import emit, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, as_json
from ckptdoctor.engine.catalogue import look_up
from ckptdoctor.report import rule_table


@click.command("explain", context_settings=SHORT_HELP)
@click.argument("code")
@as_json
def command(code: str, style: str) -> ExitStatus:
    """Explain a rule.

    Its page says what it means, why it matters, what torch says, how it is found, and how it is repaired.
    CODE is a code such as N401 or a name such as module-prefix.
    """
    rule = look_up(code)
    emit(rule_table.as_json([rule]) if style == "json" else rule_table.page(rule, width()))
    return ExitStatus.CLEAN
