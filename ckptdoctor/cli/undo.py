"""``ckptdoctor undo`` restores what a file was before it was fixed in place."""

from __future__ import annotations

import click

from ckptdoctor.cli.command import Command
from ckptdoctor.cli.console import emit, paint, succeed
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, quiet

_EXAMPLES = (
    ("Restore the file as it was before the last change in place", "ckptdoctor undo model.pt"),
    ("See which changes can be undone", "ckptdoctor undo --list model.pt"),
)


@click.command("undo", cls=Command, examples=_EXAMPLES)
@click.argument("path", shell_complete=files)
@click.option("--list", "listing", is_flag=True, help="List the changes that can be undone, and change nothing.")
@as_json
@quiet
@color
def command(path: str, listing: bool, style: str, color: str) -> ExitStatus:
    """Restore a checkpoint that was fixed in place, byte for byte.

    The last change is undone, and each further call undoes the one before. A change that was interrupted, by a crash or
    a power failure, is always undone first. Nothing is restored unless the file is exactly what the change left. A
    folder of shards is restored as a whole.

    Exit status: 0 restored, or nothing to undo; 1 refused; 2 invalid usage or an unreadable path.
    """
    from ckptdoctor import __version__
    from ckptdoctor.errors import CkptDoctorError
    from ckptdoctor.inplace.disk import SystemDisk
    from ckptdoctor.inplace.history import history, require_there, undo
    from ckptdoctor.rendering import undo as shown
    from ckptdoctor.writing.interrupts import cleaned_up

    require_there(path)
    if listing:
        found = history(SystemDisk(), path)
        emit(shown.listed_json(path, found, __version__) if style == "json" else shown.listed(path, found))
        return ExitStatus.CLEAN
    try:
        with cleaned_up():
            done = undo(SystemDisk(), path)
    except CkptDoctorError as error:
        emit(shown.refused_json(path, error.message, __version__) if style == "json" else shown.refused(error.message))
        return ExitStatus.FINDINGS
    if style == "json":
        emit(shown.undone_json(done, __version__))
    else:
        succeed(shown.undone(done, paint(color)))
    return ExitStatus.CLEAN
