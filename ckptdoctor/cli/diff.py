"""``ckptdoctor diff`` says how two checkpoints differ."""

from __future__ import annotations

import click

from ckptdoctor.cli.command import Choice, Command
from ckptdoctor.cli.console import emit, narrate, only_problems, paint, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import color, files, quiet
from ckptdoctor.cli.progress import drawn
from ckptdoctor.differences import Difference
from ckptdoctor.diffing.diff import Measure, diff
from ckptdoctor.diffing.request import DiffRequest

_STYLES = ["full", "concise", "json", "markdown"]


_EXAMPLES = (
    ("Names, shapes, dtypes and devices", "ckptdoctor diff model.pt base.pt"),
    ("The values too, with tolerances", "ckptdoctor diff --values --rtol 1e-5 --atol 1e-8 before.pt after.pt"),
)


@click.command("diff", cls=Command, examples=_EXAMPLES)
@click.argument("a", metavar="A", shell_complete=files)
@click.argument("b", metavar="B", shell_complete=files)
@click.option("--values", is_flag=True, help="Also compare the values of all tensors, and measure those that differ.")
@click.option("--rtol", default=0.0, help="With --values: ignore differences up to this times |b|.")
@click.option("--atol", default=0.0, help="With --values: ignore differences up to this.")
@click.option("--root", metavar="KEY", help='Compare only the part under this key, such as "state_dict".')
@click.option("--root-b", metavar="KEY", help="The part of B.  [default: the same as --root]")
@click.option("--all", "every", is_flag=True, help="List every tensor instead of patterns.")
@click.option("--format", "style", type=Choice(_STYLES), default="full", show_default=True, help="Output format.")
@quiet
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
    """Compare two checkpoints.

    A and B are files, folders or addresses in any formats. Names, shapes, dtypes, device tags and values other than
    tensors are compared by the headers; nothing in either file is ever run. State dicts are matched even if they are
    nested differently, and so are names that a wrapper changed.

    Exit status: 0 the same as far as compared, 1 different, 2 invalid usage or an unreadable path.
    """
    request = DiffRequest(a, b, root, root_b, rtol, atol)
    with drawn() as bar:
        found = diff(request, _measure(), bar.hear) if values or rtol or atol else diff(request)
    if not (only_problems.get() and found.same and style in ("full", "concise")):
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
