"""``ckptdoctor audit`` examines every checkpoint of a store, and keeps what it found in one database."""

from __future__ import annotations

import click

from ckptdoctor.cli.command import Command
from ckptdoctor.cli.console import emit, only_problems, paint, print_error
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, quiet
from ckptdoctor.cli.progress import drawn

_EXAMPLES = (
    ("Every checkpoint below a folder, into store.db", "ckptdoctor audit run"),
    ("Two stores into one database", "ckptdoctor audit run checkpoint -o all.db"),
)
_BAD = ("broken", "error", "warning", "weightless", "unfinished")


@click.command("audit", cls=Command, examples=_EXAMPLES)
@click.argument("stores", nargs=-1, required=True, metavar="STORE...", shell_complete=files)
@click.option(
    "-o", "--output", metavar="DB", default="store.db", show_default=True, shell_complete=files, help="The database."
)
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes.  [default: one for each processor]")
@as_json
@quiet
@color
def command(stores: tuple[str, ...], output: str, jobs: int | None, style: str, color: str) -> ExitStatus:
    """Examine every checkpoint of a store, into a database.

    STORE is a folder with any number of runs below it, or an address such as s3://bucket/runs. Each checkpoint gets
    what check finds in its headers, its step, how far it is valid, and what it takes on disk. The database is SQLite.

    The same command again examines only what has changed. Ctrl-C, or a crash, loses nothing that was examined before.

    Exit status: 0 nothing at warning or above, 1 findings, 2 invalid usage, or something that cannot be read.
    """
    from ckptdoctor.rendering import audit as shown
    from ckptdoctor.stores.audit import AuditRequest, audit
    from ckptdoctor.stores.schema import open_inventory
    from ckptdoctor.stores.summary import summary_of

    with drawn("Interrupted: nothing was examined.", what="listing"):
        audited = audit(AuditRequest(stores, output, jobs=jobs))
    connection = open_inventory(output)
    summary = summary_of(connection)
    connection.close()
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
