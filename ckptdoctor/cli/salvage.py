"""``ckptdoctor salvage`` saves what is intact of a broken checkpoint."""

from __future__ import annotations

import click

from ckptdoctor.cli.console import complain, emit, paint
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, as_json, color
from ckptdoctor.cli.progress import NOTHING_WRITTEN, drawn
from ckptdoctor.errors import CkptDoctorError, UnreadableError, UsageError
from ckptdoctor.rendering import salvage as shown
from ckptdoctor.salvaging.salvage import salvage


@click.command("salvage", context_settings=SHORT_HELP)
@click.argument("path")
@click.option("-o", "--output", metavar="OUT", help="The file or folder to write.  [default: PATH.salvaged.EXT]")
@click.option("--force", is_flag=True, help="Replace an existing output.")
@as_json
@color
def command(path: str, output: str | None, force: bool, style: str, color: str) -> ExitStatus:
    """Save what is whole of a checkpoint that is cut off or damaged.

    Every byte is read: a tensor is saved where all of it is there and matches its checksum, if it has one. What is
    lost is listed and left out; nothing is ever filled in. A folder of shards becomes another one, with an index of
    what there is. The output is verified before it gets its name, and the original is never touched. Exit status:
    0 nothing was lost, 1 something was, or nothing could be saved, 2 the path cannot be read.
    """
    try:
        with drawn(NOTHING_WRITTEN):
            report = salvage(path, output, force=force)
    except KeyboardInterrupt as interrupt:
        if style == "json":
            from ckptdoctor import __version__

            emit(shown.interrupted_json(path, str(interrupt), __version__))
        raise
    except (UsageError, UnreadableError):
        raise
    except CkptDoctorError as error:
        complain(error.message)
        return ExitStatus.FINDINGS
    if style == "json":
        from ckptdoctor import __version__

        emit(shown.as_json(report, __version__))
    else:
        emit(shown.render(report, paint(color)))
    return ExitStatus.FINDINGS if report.lost or report.lost_files else ExitStatus.CLEAN
