"""``ckptdoctor report`` writes a page about a checkpoint that can be looked at, sent and printed."""

from __future__ import annotations

from typing import Any

import click

from ckptdoctor import config
from ckptdoctor.cli.console import narrate
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, WithModel, reference_options
from ckptdoctor.cli.progress import drawn
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.rendering.gathering import write_report
from ckptdoctor.rendering.numbers import size


@click.command("report", cls=WithModel, context_settings=SHORT_HELP)
@click.argument("path")
@click.argument("other", required=False)
@click.option(
    "-o", "--output", metavar="PAGE", default="report.html", show_default=True, help="The HTML file to write."
)
@click.option("--headers-only", is_flag=True, help="Read no values: a quick page without distributions and norms.")
@reference_options
@click.option("--root", metavar="KEY", help='The part of the file that matters, such as "state_dict".')
@click.option("--force", is_flag=True, help="Replace an existing page.")
def command(
    path: str, other: str | None, output: str, headers_only: bool, root: str | None, force: bool, **target: Any
) -> ExitStatus:
    """Write a page about a checkpoint: one HTML file.

    What it holds and what is wrong with it, with the command that repairs each finding; sizes by module, how values are
    distributed, norms by depth, and every tensor. With OTHER, how that one differs. Every byte is read unless
    --headers-only. Nothing in the files is ever run (--model imports your own code), and the page loads nothing from
    anywhere. Exit status: 0 written, 2 the path cannot be read, or the page not be written.
    """
    with drawn("interrupted; no page was written") as bar:
        length = write_report(path, other, output, _settings(headers_only, root, target), bar.hear, force=force)
    narrate(f"wrote {output}, {size(length)}")
    return ExitStatus.CLEAN


def _settings(headers_only: bool, root: str | None, target: dict[str, Any]) -> Settings:
    """The command line, with the rules that the project's configuration chooses."""
    project = config.load()
    selection = Selection(project.select, project.ignore or (), project.extend_select or ())
    return Settings(selection=selection, deep=not headers_only, root=root, **target)
