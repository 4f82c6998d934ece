"""``ckptdoctor verify`` compares a file or folder with its seal, or an export with what it was made of."""

from __future__ import annotations

import click

from ckptdoctor.against.request import Request
from ckptdoctor.cli.command import Command
from ckptdoctor.cli.console import emit, paint, succeed
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, quiet
from ckptdoctor.cli.progress import drawn

_EXAMPLES = (
    ("A file, as a whole and tensor by tensor", "ckptdoctor verify copy.pt"),
    ("One tensor, without reading the others", "ckptdoctor verify copy.pt --tensor conv1.weight"),
    ("An export (GGUF too), with what it was made from", "ckptdoctor verify export.safetensors --against base.pt"),
)
_GROUPS = {
    "With a seal": ("seal", "tensors"),
    "With a source": ("against", "dropped", "added", "root", "source_root", "every"),
    "Output": ("style", "quiet", "color"),
}


@click.command("verify", cls=Command, examples=_EXAMPLES, groups=_GROUPS)
@click.argument("path", shell_complete=files)
@click.option(
    "--seal",
    metavar="FILE",
    shell_complete=files,
    help="The seal.  [default: the one next to PATH, or in it if it is a folder, or in a folder above]",
)
@click.option(
    "--tensor", "tensors", metavar="KEY", multiple=True, help="Read the bytes of this tensor only; repeatable."
)
@click.option(
    "--against",
    metavar="SOURCE",
    shell_complete=files,
    help="Account for every tensor of SOURCE in PATH, an export of it: the same bits, cast, quantised, fused or split.",
)
@click.option(
    "--dropped",
    metavar="PATTERN",
    multiple=True,
    help="With --against: tensors of SOURCE that were left out on purpose, such as '*.inv_freq'; repeatable.",
)
@click.option(
    "--added",
    metavar="PATTERN",
    multiple=True,
    help="With --against: tensors of PATH that SOURCE does not have, such as rope_freqs.weight; repeatable.",
)
@click.option("--root", metavar="KEY", help="With --against: the part of PATH that holds the weights.")
@click.option("--source-root", metavar="KEY", help="With --against: the part of SOURCE that holds the weights.")
@click.option("--all", "every", is_flag=True, help="With --against: list every tensor.")
@as_json
@quiet
@color
def command(
    path: str,
    seal: str | None,
    tensors: tuple[str, ...],
    against: str | None,
    dropped: tuple[str, ...],
    added: tuple[str, ...],
    root: str | None,
    source_root: str | None,
    every: bool,
    style: str,
    color: str,
) -> ExitStatus:
    """Compare a checkpoint with its seal, or an export with its source.

    Tensors that changed are named, with the bytes that changed. Files of a sealed folder that are missing or new are
    listed. It proves that bytes are as they were sealed, and nothing else. PATH may be an address: --tensor then
    fetches only what it reads.

    With --against, PATH is an export: every tensor of SOURCE must be found in it by its values, and every tensor of
    PATH must come from SOURCE. Both may be safetensors or PyTorch files, folders of shards, or GGUF.

    Exit status: 0 as sealed, or all accounted for; 1 something changed, or is not accounted for; 2 invalid usage, an
    unreadable path, or no intact seal.
    """
    if against is not None:
        if seal is not None or tensors:
            raise click.UsageError("--against compares with a source, --seal and --tensor with a seal: choose one.")
        return _against(Request(path, against, dropped, added, root, source_root), style, color, every)
    if dropped or added or root is not None or source_root is not None or every:
        raise click.UsageError("--dropped, --added, --root, --source-root and --all need --against SOURCE.")
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


def _against(request: Request, style: str, color: str, every: bool) -> ExitStatus:
    from ckptdoctor.against.against import against
    from ckptdoctor.rendering import against as shown

    with drawn("Interrupted: not everything was compared."):
        report = against(request)
    if style == "json":
        from ckptdoctor import __version__

        emit(shown.as_json(report, __version__))
    elif report.accounted:
        succeed(shown.rendered(report, paint(color), every))
    else:
        emit(shown.rendered(report, paint(color), every))
    return ExitStatus.CLEAN if report.accounted else ExitStatus.FINDINGS
