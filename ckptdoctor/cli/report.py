"""``ckptdoctor report`` writes a page about a checkpoint that can be looked at, sent and printed."""

from __future__ import annotations

from typing import Any

import click

from ckptdoctor import config
from ckptdoctor.cli.console import narrate
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import WithModel, files, quiet, reference_options
from ckptdoctor.cli.progress import drawn
from ckptdoctor.diagnose.selection import of_project
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.rendering.gathering import write_report, write_stores
from ckptdoctor.rendering.numbers import size
from ckptdoctor.stores.overview import is_inventory

_EXAMPLES = (
    ("A page about one checkpoint", "ckptdoctor report model.pt -o page.html"),
    ("A page about what differs, quickly", "ckptdoctor report before.pt after.pt --headers-only -o changes.html"),
)


@click.command("report", cls=WithModel, examples=_EXAMPLES)
@click.argument("path", shell_complete=files)
@click.argument("other", required=False, shell_complete=files)
@click.option(
    "-o",
    "--output",
    metavar="PAGE",
    default="report.html",
    show_default=True,
    shell_complete=files,
    help="The HTML file to write.",
)
@click.option("--headers-only", is_flag=True, help="Read no values: a quick page without distributions and norms.")
@reference_options
@click.option("--root", metavar="KEY", help='The part of the file to report on, such as "state_dict".')
@click.option("--force", is_flag=True, help="Replace an existing page.")
@quiet
def command(
    path: str, other: str | None, output: str, headers_only: bool, root: str | None, force: bool, **target: Any
) -> ExitStatus:
    """Write an HTML report about a checkpoint, in one file.

    The page shows the contents and the findings, each with the command that fixes it; sizes by module, distributions
    of values, norms by depth, and every tensor. With OTHER, it shows how that checkpoint differs. Every byte is read
    unless --headers-only is given. Nothing in the files is ever run (--model imports your own code), and the page
    loads nothing from the network. Of what ckptdoctor audit wrote, the page shows the stores: what is broken, space,
    duplicates, and the newest valid checkpoint of each run.

    Exit status: 0 written, 2 invalid usage, an unreadable path, or a page that cannot be written.
    """
    with drawn("Interrupted: no page was written.") as bar:
        if is_inventory(path):
            length = write_stores(path, other, output, target, force=force)
        else:
            length = write_report(path, other, output, _settings(headers_only, root, target), bar.hear, force=force)
    narrate(f"wrote {output}, {size(length)}")
    return ExitStatus.CLEAN


def _settings(headers_only: bool, root: str | None, target: dict[str, Any]) -> Settings:
    """Return the command line, with the rules that the project's configuration chooses."""
    return Settings(selection=of_project(config.load()), deep=not headers_only, root=root, **target)
