"""``ckptdoctor salvage`` saves what is intact of a broken checkpoint."""

from __future__ import annotations

import click

from ckptdoctor.cli.command import Command
from ckptdoctor.cli.console import complain, emit, paint, succeed
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, quiet
from ckptdoctor.cli.progress import NOTHING_WRITTEN, drawn
from ckptdoctor.errors import CkptDoctorError, UnreadableError, UsageError

_EXAMPLES = (
    ("Everything intact of a truncated file, next to it", "ckptdoctor salvage broken.pt"),
    ("The same under a name of your own", "ckptdoctor salvage broken.pt -o intact.pt"),
)


@click.command("salvage", cls=Command, examples=_EXAMPLES)
@click.argument("path", shell_complete=files)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    shell_complete=files,
    help="The file or folder to write.  [default: PATH.salvaged.EXT]",
)
@click.option("--force", is_flag=True, help="Replace an existing output.")
@as_json
@quiet
@color
def command(path: str, output: str | None, force: bool, style: str, color: str) -> ExitStatus:
    """Recover every intact tensor from a truncated or damaged checkpoint.

    Every byte is read: a tensor is intact if all of it is there and matches its checksum, if it has one, and the seal
    of the file or its folder, if there is one. Lost tensors are listed and left out; nothing is ever filled in. A
    folder of shards becomes another folder, with an index of what is left. The output is verified before it gets its
    name, and the original is never touched.

    Exit status: 0 nothing lost, 1 something lost or nothing recovered, 2 invalid usage or an unreadable path.
    """
    from ckptdoctor import __version__
    from ckptdoctor.rendering import salvage as shown  # not imported for a help text, nor for what Tab completes
    from ckptdoctor.salvaging.salvage import salvage

    try:
        with drawn(NOTHING_WRITTEN):
            report = salvage(path, output, force=force)
    except KeyboardInterrupt as interrupt:
        if style == "json":
            emit(shown.refused_json(path, str(interrupt), __version__, "interrupted"))
        raise
    except (UsageError, UnreadableError):
        raise
    except CkptDoctorError as error:
        if style == "json":
            emit(shown.refused_json(path, error.message, __version__))
        complain(error.message)
        return ExitStatus.FINDINGS
    lost = report.lost or report.lost_files
    if style == "json":
        emit(shown.as_json(report, __version__))
    elif lost:
        emit(shown.render(report, paint(color)))
    else:
        succeed(shown.render(report, paint(color)))
    return ExitStatus.FINDINGS if lost else ExitStatus.CLEAN
