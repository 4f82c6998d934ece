"""``ckptdoctor diff`` says how two checkpoints differ."""

from __future__ import annotations

import click

from ckptdoctor.cli.console import emit, narrate, paint, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, color
from ckptdoctor.cli.progress import drawn
from ckptdoctor.differences import Difference
from ckptdoctor.diffing.diff import Measure, diff
from ckptdoctor.diffing.request import DiffRequest

_STYLES = ["full", "concise", "json", "markdown"]


@click.command("diff", context_settings=SHORT_HELP)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--values", is_flag=True, help="Also compare the values of all tensors, and measure those that differ.")
@click.option("--rtol", default=0.0, help="With --values: differences up to this times |b| do not count.")
@click.option("--atol", default=0.0, help="With --values: differences up to this do not count.")
@click.option("--root", metavar="KEY", help='Only the part under this key, such as "state_dict".')
@click.option("--root-b", metavar="KEY", help="The part of B.  [default: that of --root]")
@click.option("--all", "every", is_flag=True, help="Name every tensor instead of patterns.")
@click.option(
    "--format", "style", type=click.Choice(_STYLES), default="full", show_default=True, help="How to print it."
)
@color
def command(
    a: str,
    b: str,
    values: bool,
    rtol: float,
    atol: float,
    root: str | None,
    root_b: str | None,
    every: bool,
    style: str,
    color: str,
) -> ExitStatus:
    """Say how two checkpoints differ.

    A and B are files, folders or addresses in any containers. Compared are names, shapes, dtypes, device tags and what
    lies beside the tensors, by the headers; nothing in either is ever run. State dicts with one obvious counterpart
    are taken for the same wherever they lie, and names that wrappers changed are brought together. Exit status: 0 they
    are the same as far as was compared, 1 they differ, 2 one cannot be read or the request makes no sense.
    """
    request = DiffRequest(a, b, root, root_b, rtol, atol)
    with drawn() as bar:
        found = diff(request, _measure(), bar.hear) if values or rtol or atol else diff(request)
    emit(_rendered(found, style, color, every))
    _tell_unread(found)
    if found.interrupted is not None:
        return ExitStatus.INTERRUPTED
    return ExitStatus.CLEAN if found.same else ExitStatus.FINDINGS


def _tell_unread(found: Difference) -> None:
    """Say which files of either are missing or damaged, and what an index names in vain."""
    for name, side in (("A", found.a), ("B", found.b)):
        if side.checkpoint.notes:
            from ckptdoctor.rendering.contents import left_out

            told = left_out(side.checkpoint, "was not compared", side.root)
            if told:
                narrate(f"{name}: {told}")


def _measure() -> Measure:
    from ckptdoctor.values.differences import compare_values

    return compare_values


def _rendered(found: Difference, style: str, color: str, every: bool) -> str:
    if style == "json":
        from ckptdoctor import __version__
        from ckptdoctor.rendering import diff_json

        return diff_json.render(found, __version__, every)
    from ckptdoctor.rendering import diff_text

    if style == "concise":
        return diff_text.concise(found, every)
    if style == "markdown":
        return diff_text.markdown(found, every)
    return diff_text.render(found, paint(color), width(), every)
