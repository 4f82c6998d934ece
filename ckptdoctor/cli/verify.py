"""``ckptdoctor verify`` compares a file or folder with its seal."""

from __future__ import annotations

import click

from ckptdoctor.cli.command import Command
from ckptdoctor.cli.console import emit, paint, succeed
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, quiet
from ckptdoctor.cli.progress import drawn

_EXAMPLES = (
    ("A file, as a whole and tensor by tensor", "ckptdoctor verify copy.pt"),
    ("One tensor, without reading the others", "ckptdoctor verify copy.pt --tensor conv1.weight"),
)


@click.command("verify", cls=Command, examples=_EXAMPLES)
@click.argument("path", shell_complete=files)
@click.option(
    "--seal",
    metavar="FILE",
    shell_complete=files,
    help="The seal.  [default: the one next to PATH, or in it if it is a folder]",
)
@click.option(
    "--tensor", "tensors", metavar="KEY", multiple=True, help="Read the bytes of this tensor only; repeatable."
)
@as_json
@quiet
@color
def command(path: str, seal: str | None, tensors: tuple[str, ...], style: str, color: str) -> ExitStatus:
    """Compare a checkpoint with its seal, byte by byte.

    Tensors that changed are named with the bytes that did. Files of a sealed folder that are missing or new are listed.
    It proves that bytes are as they were sealed, and nothing else. PATH may be an address: --tensor then fetches only
    what it reads.

    Exit status: 0 as sealed, 1 something changed, 2 invalid usage, an unreadable path, or no intact seal.
    """
    from ckptdoctor.rendering import seal as shown
    from ckptdoctor.sealing.verify import verify

    with drawn("Interrupted: not everything was compared."):
        report = verify(path, seal, tensors=tensors)
    if style == "json":
        from ckptdoctor import __version__

        emit(shown.verified_json(report, __version__))
    elif report.as_sealed:
        succeed(shown.verified(report, paint(color)))
    else:
        emit(shown.verified(report, paint(color)))
    return ExitStatus.CLEAN if report.as_sealed else ExitStatus.FINDINGS
