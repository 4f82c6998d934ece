"""``ckptdoctor check`` says what is wrong with files."""

from __future__ import annotations

from typing import Any

import click

from ckptdoctor import config
from ckptdoctor.cli.check_paths import check_paths
from ckptdoctor.cli.command import Choice
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import WithModel, codes, color, files, quiet, reference_options

_EXAMPLES = (
    ("One file, by its headers alone", "ckptdoctor check model.pt"),
    ("Every checkpoint in a folder, one line for each finding", "ckptdoctor check --format concise checkpoint/"),
    ("One file, compared with the model that your code builds", "ckptdoctor check model.pt --model nets:Net"),
)
_GROUPS = {
    "Examination": ("deep", "root", "select", "ignore", "extend_select"),
    "Target": ("model", "config", "like", "error"),
    "Output": ("fail_on", "style", "statistics", "quiet", "color"),
}


@click.command("check", cls=WithModel, examples=_EXAMPLES, groups=_GROUPS)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", shell_complete=files)
@click.option("--deep", is_flag=True, help="Also read every byte and value: checksums, zero-filled regions, NaN.")
@reference_options
@click.option(
    "--error",
    metavar="TEXT",
    shell_complete=files,
    help="Compare with what this load_state_dict error expects: its text, or a file with it.",
)
@click.option("--root", metavar="KEY", help='The part of the file to check, such as "state_dict".')
@codes("--select", "Run only these rules: codes, names or prefixes, separated by commas.")
@codes("--ignore", "Skip these rules.")
@codes("--extend-select", "Run these rules too.")
@click.option(
    "--fail-on",
    type=Choice(["error", "warning", "info", "never"]),
    help="The lowest severity that makes the exit status 1.  [default: warning]",
)
@click.option("--format", "style", type=Choice(config.FORMATS), help="Output format.  [default: full]")
@click.option("--statistics", is_flag=True, help="Also count the findings of each rule.")
@quiet
@color
def command(paths: tuple[str, ...], **asked: Any) -> ExitStatus:
    """Report what is wrong with checkpoints, and how to fix it.

    PATH is a file, a directory (searched for checkpoints), a glob, an address, or - for standard input. Only headers
    are read, and nothing in a file is ever run (--model imports your own code).

    Exit status: 0 nothing at or above --fail-on, 1 findings, 2 invalid usage or an unreadable path.
    """
    return check_paths(paths, **asked)
