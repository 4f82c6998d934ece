"""``ckptdoctor graft`` takes damaged tensors from another copy, and flips single bits back without one."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from ckptdoctor.checkpoint.progress import Progress, follow
from ckptdoctor.cli.command import Command
from ckptdoctor.cli.console import complain, emit, paint, succeed, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, quiet
from ckptdoctor.cli.progress import NOTHING_WRITTEN, drawn
from ckptdoctor.errors import CkptDoctorError, UnreadableError, UsageError
from ckptdoctor.grafting.request import GraftRequest
from ckptdoctor.remote.addresses import shown as plainly

if TYPE_CHECKING:
    from ckptdoctor.edits.grafts import FolderGraftReport, GraftReport


_EXAMPLES = (
    ("Replace what is damaged", "ckptdoctor graft damaged.pt --from copy.pt"),
    ("Flip single bits back, without another copy", "ckptdoctor graft damaged.pt -o healed.pt"),
    ("Show what would be replaced, and write nothing", "ckptdoctor graft damaged.pt --from copy.pt --diff"),
)


@click.command("graft", cls=Command, examples=_EXAMPLES)
@click.argument("path", metavar="DAMAGED", shell_complete=files)
@click.option(
    "--from",
    "donor",
    metavar="OTHER",
    shell_complete=files,
    help="The other copy: a file or folder in any format, or an address, of which only damaged tensors are fetched. "
    "Without it only single flipped bits are healed.",
)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    shell_complete=files,
    help="The file to write, or a directory.  [default: PATH.grafted.EXT, or PATH.grafted for a folder]",
)
@click.option("--key", "keys", metavar="PATTERN", multiple=True, help="Replace the tensors that match, damaged or not.")
@click.option("--root", metavar="KEY", help='The part of DAMAGED to repair, such as "state_dict".')
@click.option("--from-root", metavar="KEY", help="With --root: the corresponding part of OTHER.")
@click.option("--unsafe-fixes", "unsafe", is_flag=True, help="Also do what mixes two different saves.")
@click.option("--diff", "dry", is_flag=True, help="Show what would be replaced, and write nothing.")
@click.option("--force", is_flag=True, help="Replace an existing output, even the original itself.")
@as_json
@quiet
@color
def command(
    path: str,
    donor: str | None,
    output: str | None,
    keys: tuple[str, ...],
    root: str | None,
    from_root: str | None,
    unsafe: bool,
    dry: bool,
    force: bool,
    style: str,
    color: str,
) -> ExitStatus:
    """Replace damaged tensors with those of another copy.

    OTHER is another copy of the same checkpoint. A tensor is damaged if it does not match its checksum, has holes of
    zero bytes, or contains NaN or infinities; --key names tensors to replace instead. OTHER must have each of them
    intact, with the same name, shape and dtype. All other bytes of DAMAGED stay as they are.

    A checksum in DAMAGED, a seal or a published hash proves that the new bytes are those that were saved. Without one,
    both files must agree in every other tensor to count as copies of one save. Anything else needs --unsafe-fixes.

    From an address (https://, hf://, s3://), only headers and the damaged tensors are fetched. The SHA-256 that its
    server publishes, or a seal next to either file, proves the whole file. Without those, the report names the tensors
    that their own checksums prove.

    A single flipped bit of a PyTorch .pt (zip) file needs no other copy: it is flipped back if the checksum shows which
    one it was, and other damage would look the same in fewer than 1 of 10,000 cases, or a seal or a published SHA-256
    agrees. Without --from, nothing else is done; ckptdoctor salvage recovers what is intact.

    If DAMAGED is a folder, OTHER is another copy of it. Each file is healed completely or not at all, and all files
    together show whether the folders are copies of one save. A missing or unreadable file is copied from OTHER if it
    has the sealed SHA-256, or if it has the tensors that the index names and the folders agree in all others.

    The output is verified before it gets its name. The original stays as it is, unless -o names it and --force is
    given; in a folder, that replaces damaged files only.

    Exit status: 0 nothing is damaged any more, 1 something was refused or is still damaged, 2 invalid usage or an
    unreadable path.
    """
    request = GraftRequest(path, donor, output, keys, root, from_root, unsafe, force, dry)
    try:
        return _carried_out(request, style, color)
    except KeyboardInterrupt as interrupt:
        if style == "json":
            from ckptdoctor import __version__
            from ckptdoctor.rendering import graft as shown

            emit(shown.refused_json(path, donor and plainly(donor), str(interrupt), __version__, "interrupted"))
        raise
    except (UsageError, UnreadableError):
        raise
    except CkptDoctorError as error:
        _refuse(request, error, style, color)
        return ExitStatus.FINDINGS


def _carried_out(request: GraftRequest, style: str, color: str) -> ExitStatus:
    """Do it, for a file or a folder; people hear what will be done before it is."""
    steps, shown = _of_folder() if os.path.isdir(request.path) else _of_file()
    with drawn(NOTHING_WRITTEN) as bar:

        def hear(event: Progress | GraftReport | FolderGraftReport) -> None:
            if isinstance(event, Progress):
                bar.hear(event)
                return
            bar.clear()
            if style != "json":
                succeed(shown.planned(event, paint(color), width()))

        report = follow(steps(request), hear)
    if style == "json":
        from ckptdoctor import __version__

        emit(shown.as_json(report, __version__))
    else:
        (emit if report.stays_damaged else succeed)(shown.outcome(report, paint(color), width()))
    return ExitStatus.FINDINGS if report.stays_damaged else ExitStatus.CLEAN


def _of_file() -> tuple[Callable[[GraftRequest], Any], ModuleType]:
    """Return what grafts a file step by step, and what reports it."""
    from ckptdoctor.grafting.heal import grafting
    from ckptdoctor.rendering import graft

    return grafting, graft


def _of_folder() -> tuple[Callable[[GraftRequest], Any], ModuleType]:
    """Return the same for a folder."""
    from ckptdoctor.grafting.folders import grafting_folder
    from ckptdoctor.rendering import graft_folder

    return grafting_folder, graft_folder


def _refuse(request: GraftRequest, error: CkptDoctorError, style: str, color: str) -> None:
    from ckptdoctor.rendering import conversion
    from ckptdoctor.rendering import graft as shown

    if style == "json":
        from ckptdoctor import __version__

        donor = request.donor and plainly(request.donor)
        emit(shown.refused_json(request.path, donor, error.message, __version__))
        complain(error.message.split("\n")[0])
    else:
        emit(conversion.refused(error.message, paint(color)))
