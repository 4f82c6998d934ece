"""``ckptdoctor graft`` takes damaged tensors from another copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ckptdoctor.checkpoint.progress import Progress, follow
from ckptdoctor.cli.console import complain, emit, paint, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, as_json, color
from ckptdoctor.cli.progress import NOTHING_WRITTEN, drawn
from ckptdoctor.errors import CkptDoctorError, UnreadableError, UsageError
from ckptdoctor.grafting.request import GraftRequest

if TYPE_CHECKING:
    from ckptdoctor.edits.grafts import GraftReport


@click.command("graft", context_settings=SHORT_HELP)
@click.argument("path", metavar="DAMAGED")
@click.option("--from", "donor", metavar="OTHER", required=True, help="The other copy: a file or folder of any format.")
@click.option("-o", "--output", metavar="OUT", help="The file to write, or a directory.  [default: PATH.grafted.EXT]")
@click.option("--key", "keys", metavar="PATTERN", multiple=True, help="Take what matches, even where nothing is wrong.")
@click.option("--root", metavar="KEY", help='The part of DAMAGED that matters, such as "state_dict".')
@click.option("--from-root", metavar="KEY", help="With --root: the part of OTHER that stands for it.")
@click.option("--unsafe-fixes", "unsafe", is_flag=True, help="Also what makes a mixture of two saves.")
@click.option("--diff", "dry", is_flag=True, help="Say what would be taken, and write nothing.")
@click.option("--force", is_flag=True, help="Replace an existing output, even the original itself.")
@as_json
@color
def command(
    path: str,
    donor: str,
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
    """Take damaged tensors from another copy of the same checkpoint.

    With no --key, those that do not match their checksums, have holes of zero bytes, or hold NaN or infinities. Names,
    shapes and dtypes must be the same in OTHER, and its own tensors whole. All other bytes of DAMAGED stay as they are.
    Bytes that fit the checksum in DAMAGED are what was saved; without one, both files must agree in every other tensor
    to pass for copies of one save, and anything else needs --unsafe-fixes. The output is verified before it gets its
    name, and the original is never touched. Exit status: 0 every damaged tensor was healed, or none is damaged; 1
    something was refused, or stays damaged; 2 the request makes no sense, or a path cannot be read.
    """
    request = GraftRequest(path, donor, output, keys, root, from_root, unsafe, force, dry)
    try:
        return _carried_out(request, style, color)
    except KeyboardInterrupt as interrupt:
        if style == "json":
            from ckptdoctor import __version__
            from ckptdoctor.rendering import graft as shown

            emit(shown.refused_json(path, donor, str(interrupt), __version__, "interrupted"))
        raise
    except (UsageError, UnreadableError):
        raise
    except CkptDoctorError as error:
        _refuse(request, error, style, color)
        return ExitStatus.FINDINGS


def _carried_out(request: GraftRequest, style: str, color: str) -> ExitStatus:
    """Do it; people hear what will be done before it is."""
    from ckptdoctor.grafting.heal import grafting
    from ckptdoctor.rendering import graft as shown

    with drawn(NOTHING_WRITTEN) as bar:

        def hear(event: Progress | GraftReport) -> None:
            if isinstance(event, Progress):
                bar.hear(event)
                return
            bar.clear()
            if style != "json":
                emit(shown.planned(event, paint(color), width()))

        report = follow(grafting(request), hear)
    if style == "json":
        from ckptdoctor import __version__

        emit(shown.as_json(report, __version__))
    else:
        emit(shown.outcome(report, paint(color), width()))
    return ExitStatus.FINDINGS if report.stays_damaged else ExitStatus.CLEAN


def _refuse(request: GraftRequest, error: CkptDoctorError, style: str, color: str) -> None:
    from ckptdoctor.rendering import conversion
    from ckptdoctor.rendering import graft as shown

    if style == "json":
        from ckptdoctor import __version__

        emit(shown.refused_json(request.path, request.donor, error.message, __version__))
        complain(error.message.split("\n")[0])
    else:
        emit(conversion.refused(error.message, paint(color)))
