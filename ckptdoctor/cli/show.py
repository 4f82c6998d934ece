"""``ckptdoctor show`` shows what is in a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack

import click

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.cli.command import Choice, Command
from ckptdoctor.cli.console import can_show, emit, narrate, paint, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, quiet
from ckptdoctor.cli.progress import drawn
from ckptdoctor.examine.paths import STANDARD_INPUT, spooled
from ckptdoctor.look.contents import Excerpt, read_part
from ckptdoctor.look.measuring import Measurement, measured
from ckptdoctor.rendering.numbers import plural

# what --sort takes: names of rendering.value_table.ORDERS, which is not imported for a help text
ORDERS = ("nan", "absmax", "norm", "mean", "std", "zeros", "size")


class _Explaining(Command):
    """Below the options, its help explains the language of the filter, in the words of the browser's help."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Add it."""
        from ckptdoctor.filters.words import RULES, WORDS

        with formatter.section("Filter"):
            formatter.write_text(RULES)
            formatter.write_paragraph()
            formatter.write_dl(WORDS)
        super().format_epilog(ctx, formatter)


_EXAMPLES = (
    ("The tree of modules", "ckptdoctor show model.pt"),
    ("Every large matrix of some layers, one a line", "ckptdoctor show model.pt --keys --filter 'conv* >1kB'"),
    ("Statistics of every tensor, outliers first", "ckptdoctor show model.pt --stats --sort absmax"),
)


@click.command("show", cls=_Explaining, examples=_EXAMPLES)
@click.argument("path", shell_complete=files)
@click.option("--keys", "what", flag_value="keys", help="List the tensors, one a line.")
@click.option("--devices", "what", flag_value="devices", help="List the tensors by device tag.")
@click.option("--stats", "what", flag_value="stats", help="Read every value: min, max, mean, NaN, a small histogram.")
@click.option("--root", metavar="KEY", help='Show only the part under this key, such as "state_dict".')
@click.option("--filter", "filters", multiple=True, metavar="TEXT", help="Show only tensors that match; see below.")
@click.option("--only", multiple=True, metavar="GLOB", help="With --stats: only tensors whose key matches.")
@click.option("--sort", type=Choice(ORDERS), help="With --stats: the largest first.  [default: file order]")
@as_json
@quiet
@color
def command(
    path: str,
    what: str | None,
    root: str | None,
    filters: tuple[str, ...],
    only: tuple[str, ...],
    sort: str | None,
    style: str,
    color: str,
) -> ExitStatus:
    """Show what is in a checkpoint.

    Prints the tree of modules with shapes, dtypes, sizes and device tags, and every other value in its place. Only
    headers are read (--stats reads all values), and nothing in the file is ever run. PATH may be - for standard input.

    Exit status: 0 shown, 1 no tensor matches --filter, 2 invalid usage or an unreadable path.
    """
    if what != "stats" and (only or sort):
        raise click.UsageError("--only and --sort need --stats.")
    text = " ".join(filters)
    with ExitStack() as stack:
        source = stack.enter_context(spooled(sys.stdin.buffer)) if path == STANDARD_INPUT else path
        if what == "stats":
            with drawn() as bar:
                found = measured(source, root, only, bar.hear, text)
            return _told(path, found.part, lambda: _statistics(found, sort, style, color), style, found.interrupted)
        with drawn():
            part = _read(source, root, text)
    return _told(path, part, lambda: _rendered(part, what, style, color), style)


def _read(path: str, root: str | None, text: str) -> Excerpt:
    if not text:
        return read_part(path, root)
    from ckptdoctor.look.filtered import read_filtered

    return read_filtered(path, text, root)


def _told(path: str, part: Excerpt, render: Callable[[], str], style: str, interrupted: bool = False) -> ExitStatus:
    """Print what is shown. What is missing, or that nothing matches the filter, is said on stderr.

    Only JSON says on stdout, too, that nothing matches.
    """
    missed = part.asked is not None and not part.checkpoint.tensors
    if not missed or style == "json":
        emit(render())
    if part.checkpoint.notes:
        from ckptdoctor.rendering.contents import left_out

        unread = left_out(part.checkpoint, "is not shown", part.root)
        if unread:
            narrate(unread)
        for note in part.checkpoint.notes:
            if note.kind is NoteKind.NOT_EXAMINED:
                narrate(f"Not examined: {note.message.rstrip('.')}.")
    if part.asked is not None and missed:
        from ckptdoctor.rendering.shell import with_path

        number, command = plural(part.asked.tensors, "tensor"), with_path("ckptdoctor show FILE --keys", path)
        offer = f' Did you mean "{part.asked.better}"?' if part.asked.better else ""
        narrate(f"0 of {number} match {part.asked.text}.{offer} List the keys: {command}")
    if interrupted:
        return ExitStatus.INTERRUPTED
    return ExitStatus.FINDINGS if missed else ExitStatus.CLEAN


def _statistics(found: Measurement, sort: str | None, style: str, color: str) -> str:
    if style == "json":
        from ckptdoctor import __version__
        from ckptdoctor.rendering import show_json

        return show_json.render_values(found.values, __version__, found.part.root, _asked(found.part))
    from ckptdoctor.rendering.value_numbers import BLOCKS
    from ckptdoctor.rendering.value_table import table

    return f"{_title(found.part)}\n{table(found.values, sort, width(), paint(color), plain=not can_show(BLOCKS))}"


def _rendered(part: Excerpt, what: str | None, style: str, color: str) -> str:
    if style == "json":
        from ckptdoctor import __version__
        from ckptdoctor.rendering import show_json

        return show_json.render(part.checkpoint, __version__, part.root, part.node, _asked(part))
    if what == "keys":
        from ckptdoctor.rendering import tree

        return tree.keys(part.checkpoint.tensors)
    if what == "devices":
        from ckptdoctor.rendering import devices

        return devices.devices(part.checkpoint)
    from ckptdoctor.rendering import tree

    return f"{_title(part)}\n{tree.tree(part.checkpoint, part.root, part.node, paint(color))}"


def _title(part: Excerpt) -> str:
    from ckptdoctor.rendering.contents import heading

    return "\n".join(heading(part.checkpoint, width(), part.asked.tensors if part.asked is not None else None))


def _asked(part: Excerpt) -> tuple[str, int] | None:
    return None if part.asked is None else (part.asked.text, part.asked.tensors)
