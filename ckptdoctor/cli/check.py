"""``ckptdoctor check`` says what is wrong with files."""

from __future__ import annotations

from typing import Any

import click

from ckptdoctor import config
from ckptdoctor.cli.check_paths import check_paths
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, WithModel, codes, color, reference_options


@click.command("check", cls=WithModel, context_settings=SHORT_HELP)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--deep", is_flag=True, help="Also read every byte and every value: checksums, zero-filled regions, NaN.")
@reference_options
@click.option("--error", metavar="TEXT", help="Compare with what this error of load_state_dict expects (text or file).")
@click.option("--root", metavar="KEY", help='The part of the file that matters, such as "state_dict".')
@codes("--select", "Only these rules: codes, names or prefixes, separated by commas.")
@codes("--ignore", "Not these rules.")
@codes("--extend-select", "These rules too.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "never"]),
    help="The lowest severity that makes the exit status 1.  [default: warning]",
)
@click.option("--format", "style", type=click.Choice(config.FORMATS), help="How to print it.  [default: full]")
@click.option("--statistics", is_flag=True, help="Also count the findings of each rule.")
@color
def command(paths: tuple[str, ...], **asked: Any) -> ExitStatus:
    """Say what is wrong with checkpoints, and which command repairs it.

    PATH is a file, a directory (searched for checkpoints), a glob, or - for standard input. Only headers are read,
    and nothing in a file is ever run (--model imports your own code). Exit status: 0 nothing at or above --fail-on,
    1 findings, 2 a path could not be read or the request makes no sense.
    """
    return check_paths(paths, **asked)
