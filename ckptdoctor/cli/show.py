"""``ckptdoctor show``: what is in this file?"""

from __future__ import annotations

import sys
from contextlib import ExitStack

import click

from ckptdoctor.cli.console import can_show, emit, paint, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, as_json, color
from ckptdoctor.cli.progress import ProgressBar
from ckptdoctor.engine.contents import Part, read_part
from ckptdoctor.engine.measuring import Measurement, measured
from ckptdoctor.engine.paths import STANDARD_INPUT, spooled

# what --sort takes: names of report.value_table.ORDERS, which is not imported for a help text
ORDERS = ("nan", "absmax", "norm", "mean", "std", "zeros", "size")


@click.command("show", context_settings=SHORT_HELP)
@click.argument("path")
@click.option("--keys", "what", flag_value="keys", help="A flat list: one tensor a line.")
@click.option("--devices", "what", flag_value="devices", help="Which tensors lie on which device tag.")
@click.option("--stats", "what", flag_value="stats", help="Read every value: extremes, mean, NaN, a small histogram.")
@click.option("--root", metavar="KEY", help='Only the part of the file under this key, such as "state_dict".')
@click.option("--only", multiple=True, metavar="GLOB", help="With --stats: only tensors whose key matches.")
@click.option("--sort", type=click.Choice(ORDERS), help="With --stats: the greatest first.  [default: as in the file]")
@as_json
@color
def command(
    path: str, what: str | None, root: str | None, only: tuple[str, ...], sort: str | None, style: str, color: str
) -> ExitStatus:
    """Show what a checkpoint holds.

    The tree of modules with shapes, dtypes, sizes and device tags, and everything beside the tensors in its place.
    Only headers are read (--stats reads all values), and nothing in the file is ever run. PATH may be - for standard
    input.
    """
    if what != "stats" and (only or sort):
        raise click.UsageError("--only and --sort belong to --stats.")
    with ExitStack() as stack:
        source = stack.enter_context(spooled(sys.stdin.buffer)) if path == STANDARD_INPUT else path
        if what == "stats":
            return _statistics(measured(source, root, only, ProgressBar().watch), sort, style, color)
        part = read_part(source, root)
    emit(_rendered(part, what, style, color))
    return ExitStatus.CLEAN


def _statistics(found: Measurement, sort: str | None, style: str, color: str) -> ExitStatus:
    if style == "json":
        from ckptdoctor import __version__
        from ckptdoctor.report import value_json

        emit(value_json.render(found.values, __version__, found.part.root))
    else:
        from ckptdoctor.report.contents import heading
        from ckptdoctor.report.value_numbers import BLOCKS
        from ckptdoctor.report.value_table import table

        title = "\n".join(heading(found.part.checkpoint, width()))
        emit(f"{title}\n{table(found.values, sort, width(), paint(color), plain=not can_show(BLOCKS))}")
    return ExitStatus.INTERRUPTED if found.interrupted else ExitStatus.CLEAN


def _rendered(part: Part, what: str | None, style: str, color: str) -> str:
    if style == "json":
        from ckptdoctor import __version__
        from ckptdoctor.report import show_json

        return show_json.render(part.checkpoint, __version__, part.root, part.node)
    if what == "keys":
        from ckptdoctor.report import tree

        return tree.keys(part.checkpoint.tensors)
    if what == "devices":
        from ckptdoctor.report import devices

        return devices.devices(part.checkpoint)
    from ckptdoctor.report import tree
    from ckptdoctor.report.contents import heading

    title = "\n".join(heading(part.checkpoint, width()))
    return f"{title}\n{tree.tree(part.checkpoint, part.root, part.node, paint(color))}"
