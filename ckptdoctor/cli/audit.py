"""``ckptdoctor audit`` examines every checkpoint of a store, and keeps what it found in one database."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from ckptdoctor.cli.command import Choice, Command
from ckptdoctor.cli.console import emit, narrate, only_problems, paint, print_error
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, quiet
from ckptdoctor.cli.progress import drawn
from ckptdoctor.errors import UsageError
from ckptdoctor.noun import replace
from ckptdoctor.stores import MODES

if TYPE_CHECKING:
    from ckptdoctor.stores.parquet import Exported

_EXAMPLES = (
    ("Every checkpoint below a folder, into store.db", "ckptdoctor audit run"),
    (
        "The third of eight parts, as a job of an array, and later all of them",
        "ckptdoctor audit run --shard 3/8 -o 3.db",
    ),
    ("Several databases in one", "ckptdoctor audit --merge 3.db -o all.db"),
)


class _AuditCommand(Command):
    """The command, in which ``--deep`` needs no value: what follows may be a store."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say what a lone ``--deep`` means, and parse."""
        alone = [at for at, each in enumerate(args) if each == "--deep" and not set(args[at + 1 : at + 2]) & {*MODES}]
        return super().parse_args(ctx, ["--deep=changed" if at in alone else each for at, each in enumerate(args)])


def _part(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, int]:
    """Return the numbers of 3/8."""
    number, slash, of = (value or "1/1").partition("/")
    if not slash or not number.isdecimal() or not of.isdecimal():
        raise click.BadParameter(f'"{value}" is not a part such as 3/8.')
    return int(number), int(of)


_BAD = ("broken", "error", "warning", "weightless", "unfinished")


@click.command("audit", cls=_AuditCommand, examples=_EXAMPLES)
@click.argument("stores", nargs=-1, metavar="STORE...", shell_complete=files)
@click.option(
    "-o", "--output", metavar="DB", default="store.db", show_default=True, shell_complete=files, help="The database."
)
@click.option(
    "--deep",
    type=Choice(MODES),
    help="Also read every byte: of what has changed since it was last read (changed, the default), of one in twenty, "
    "different ones each day (sample), or of all.",
)
@click.option("--shard", metavar="K/N", callback=_part, help="Examine the K-th of N parts, for jobs of an array.")
@click.option(
    "--from-inventory",
    is_flag=True,
    help="STORE... are inventory manifests of S3 or MinIO; their buckets are not listed.",
)
@click.option(
    "--limit-rate", metavar="RATE", help="Read no faster than this, such as 500MB/s, in all processes together."
)
@click.option("--merge", is_flag=True, help="Merge databases into one: STORE... are what other audits wrote.")
@click.option(
    "--export",
    metavar="parquet[=FOLDER]",
    help="Also write the tables as Parquet, one file each; without STORE, those of an existing database.",
)
@click.option(
    "--engine",
    metavar="NAME",
    default="local",
    show_default=True,
    help="Where checkpoints are examined: local, ray (the cluster of RAY_ADDRESS, or a new one here), ray=ADDRESS.",
)
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes.  [default: one per processor]")
@as_json
@quiet
@color
def command(
    stores: tuple[str, ...],
    output: str,
    deep: str | None,
    shard: tuple[int, int],
    from_inventory: bool,
    limit_rate: str | None,
    merge: bool,
    export: str | None,
    engine: str,
    jobs: int | None,
    style: str,
    color: str,
) -> ExitStatus:
    """Examine every checkpoint of a store, into a database.

    STORE is a folder with any number of runs below it, or an address such as s3://bucket/runs. For each checkpoint, the
    database holds what check finds in its headers, its step, how much of it is proven valid, and its size on disk. It
    is SQLite.

    Run the same command again to examine only what has changed. Ctrl-C, or a crash, loses nothing of what was examined.
    For pandas, DuckDB or Spark, --export parquet writes the tables once more, into the folder store-parquet.

    Exit status: 0 nothing at warning or above, 1 findings, 2 invalid usage, or something that cannot be read.
    """
    from ckptdoctor.converting.request import size_of
    from ckptdoctor.rendering import audit as shown
    from ckptdoctor.stores.audit import AuditRequest, audit
    from ckptdoctor.stores.audit import merge as put_together
    from ckptdoctor.stores.parquet import folder_of
    from ckptdoctor.stores.schema import open_inventory
    from ckptdoctor.stores.summary import summary_of

    if not stores and export is None:
        raise UsageError("Name a store: a folder with runs below it, or an address such as s3://bucket/runs.")
    folder = folder_of(export, output) if export is not None else ""
    if not stores:
        _export(output, folder)
        return ExitStatus.CLEAN
    rate = size_of(limit_rate.removesuffix("/s"), "--limit-rate") if limit_rate is not None else 0
    with drawn("Interrupted: nothing was examined.", what="merging" if merge else "listing"):
        request = AuditRequest(stores, output, engine, jobs, shard, deep or "", from_inventory, rate)
        audited = put_together(stores, output) if merge else audit(request)
    with closing(open_inventory(output)) as connection:
        summary = summary_of(connection)
    if folder and not audited.interrupted:
        audited = replace(audited, exported=_export(output, folder))
    if style == "json":
        from ckptdoctor import __version__

        emit(shown.as_json(audited, summary, __version__))
    elif not only_problems.get() or summary.problems or summary.errors:
        emit(shown.told(audited, summary, paint(color)))
    if audited.interrupted:
        print_error(shown.resume_command(audited))
        return ExitStatus.INTERRUPTED
    if summary.errors or audited.unlisted:
        return ExitStatus.TROUBLE
    return ExitStatus.FINDINGS if any(summary.health.get(each) for each in _BAD) else ExitStatus.CLEAN


def _export(output: str, folder: str) -> Exported:
    """Write the tables of the database into the folder, and say so."""
    from ckptdoctor.rendering.numbers import size
    from ckptdoctor.stores.parquet import export
    from ckptdoctor.wording import plural

    with drawn("Interrupted: the tables are not written; the database is as it was.", what="writing tables"):
        made = export(output, folder)
    tables, rows = plural(made.tables, "table"), plural(made.rows, "row")
    narrate(f"wrote {made.folder}: {tables} with {rows}, {size(made.nbytes)}")
    return made
