"""``ckptdoctor rebuild`` makes lost blocks of a file again from the parity that ``seal --parity`` kept."""

from __future__ import annotations

import click

from ckptdoctor.cli.command import Command
from ckptdoctor.cli.console import complain, emit, paint, succeed
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, quiet
from ckptdoctor.cli.progress import NOTHING_WRITTEN, drawn
from ckptdoctor.errors import CkptDoctorError, MissingPackageError, UnreadableError, UsageError

_EXAMPLES = (
    ("Rebuild what is lost, next to the damaged file", "ckptdoctor rebuild worn.pt"),
    ("Show what is lost, and write nothing", "ckptdoctor rebuild worn.pt --diff"),
    ("All damaged files of a folder, where they are", "ckptdoctor rebuild worn/ -o worn/ --force"),
)


@click.command("rebuild", cls=Command, examples=_EXAMPLES)
@click.argument("path", shell_complete=files)
@click.option("--parity", metavar="FILE", shell_complete=files, help="The parity file.  [default: PATH.parity]")
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    shell_complete=files,
    help="The file to write, or a directory.  [default: PATH.rebuilt.EXT, or PATH.rebuilt for a folder]",
)
@click.option("--diff", "dry", is_flag=True, help="Show what is lost, and write nothing.")
@click.option("--force", is_flag=True, help="Replace an existing output, even the original itself.")
@as_json
@quiet
@color
def command(
    path: str, parity: str | None, output: str | None, dry: bool, force: bool, style: str, color: str
) -> ExitStatus:
    """Rebuild lost blocks of a sealed file from its parity.

    ckptdoctor seal --parity writes the parity. Every block of the file is compared with its checksum, and blocks that
    do not match or are cut off are rebuilt, whatever the format of the file. The output must have the sealed SHA-256
    before it gets its name. If more is lost than the parity can rebuild, nothing is written.

    If PATH is a folder, each of its files is rebuilt completely or not at all, and a sealed one without parity is
    compared with its SHA-256. The output is a new folder with all files.

    The original stays as it is, unless -o names it and --force is given; in a folder, that replaces damaged files only.

    Exit status: 0 rebuilt, or nothing is lost; 1 refused, or something is still damaged; 2 invalid usage, an unreadable
    path, or no parity.
    """
    from ckptdoctor import __version__
    from ckptdoctor.rendering import parity as shown
    from ckptdoctor.sealing.parity.folders import FolderRebuildReport, rebuild_any

    try:
        with drawn(NOTHING_WRITTEN):
            report = rebuild_any(path, parity, output, force=force, dry=dry)
    except KeyboardInterrupt as interrupt:
        if style == "json":
            emit(shown.refused_json(path, str(interrupt), __version__, "interrupted"))
        raise
    except (UsageError, UnreadableError, MissingPackageError):
        raise
    except CkptDoctorError as error:
        if style == "json":
            emit(shown.refused_json(path, error.message, __version__))
        complain(error.message)
        return ExitStatus.FINDINGS
    if isinstance(report, FolderRebuildReport):
        from ckptdoctor.rendering import parity_folder

        said = (
            parity_folder.as_json(report, __version__)
            if style == "json"
            else parity_folder.rebuilt(report, paint(color))
        )
        (emit if report.left else succeed)(said)
        return ExitStatus.FINDINGS if report.left else ExitStatus.CLEAN
    succeed(shown.as_json(report, __version__) if style == "json" else shown.rebuilt(report, paint(color)))
    return ExitStatus.CLEAN
