"""``ckptdoctor report`` writes a page about a checkpoint that can be looked at, sent and printed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from ckptdoctor import config
from ckptdoctor.cli.console import complain, narrate
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, WithModel, reference_options
from ckptdoctor.cli.progress import ProgressBar, drawn
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.diffing.diff import Measure
from ckptdoctor.rendering.gathering import Gathered, compared, gathered, require_room, write_page
from ckptdoctor.rendering.html.examined import Examined
from ckptdoctor.rendering.numbers import size

_KIND = b"<!doctype html>"


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
    require_room(output, _KIND, force=force)
    with drawn("interrupted; no page was written") as bar:
        found = gathered(path, _settings(headers_only, root, target), bar.hear)
        if found.report.interrupted:
            raise KeyboardInterrupt
        if found.report.error is not None:
            complain(found.report.error)
            return ExitStatus.TROUBLE
        page = _page(found, other, root, headers_only, bar)
        write_page(page, output, _KIND, force=force)
    narrate(f"wrote {output}, {size(len(page))}")
    return ExitStatus.CLEAN


def _settings(headers_only: bool, root: str | None, target: dict[str, Any]) -> Settings:
    """The command line, with the rules that the project's configuration chooses."""
    project = config.load()
    selection = Selection(project.select, project.ignore or (), project.extend_select or ())
    return Settings(selection=selection, deep=not headers_only, root=root, **target)


def _page(found: Gathered, other: str | None, root: str | None, headers_only: bool, bar: ProgressBar) -> bytes:
    from ckptdoctor import __version__
    from ckptdoctor.rendering.html.page import render

    difference = None
    if other is not None:
        difference = compared(found.report.path, other, root, None if headers_only else _measure(), bar.hear)
    when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return render(Examined(found.report, found.values, difference, __version__, when))


def _measure() -> Measure:
    from ckptdoctor.values.differences import compare_values

    return compare_values
