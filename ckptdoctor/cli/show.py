"""``ckptdoctor show``: what is in this file?"""

from __future__ import annotations

import sys
from contextlib import ExitStack

import click

from ckptdoctor.cli.console import emit, paint, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, as_json, color
from ckptdoctor.engine.contents import Part, read_part
from ckptdoctor.engine.paths import STANDARD_INPUT, spooled


@click.command("show", context_settings=SHORT_HELP)
@click.argument("path")
@click.option("--keys", "what", flag_value="keys", help="A flat list: one tensor a line.")
@click.option("--devices", "what", flag_value="devices", help="Which tensors lie on which device tag.")
@click.option("--root", metavar="KEY", help='Only the part of the file under this key, such as "state_dict".')
@as_json
@color
def command(path: str, what: str | None, root: str | None, style: str, color: str) -> ExitStatus:
    """Show what a checkpoint holds.

    The tree of modules with shapes, dtypes, sizes and device tags, and everything beside the tensors in its place.
    Only headers are read, and nothing in the file is ever run. PATH may be - for standard input.
    """
    with ExitStack() as stack:
        source = stack.enter_context(spooled(sys.stdin.buffer)) if path == STANDARD_INPUT else path
        part = read_part(source, root)
    emit(_rendered(part, what, style, color))
    return ExitStatus.CLEAN


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
