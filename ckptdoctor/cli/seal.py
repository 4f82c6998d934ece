"""``ckptdoctor seal`` keeps the hashes of a file or folder, by which ``verify`` proves it later."""

from __future__ import annotations

import click

from ckptdoctor.cli.command import Choice, Command
from ckptdoctor.cli.console import emit, paint, succeed
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import color, files, quiet
from ckptdoctor.cli.progress import NOTHING_WRITTEN, drawn

_EXAMPLES = (
    ("A file, before it is copied or published", "ckptdoctor seal model.pt"),
    ("A folder as one, with 1 % of parity to rebuild lost blocks from", "ckptdoctor seal checkpoint/ --parity 1%"),
    ("The manifest that OpenSSF model signing signs", "ckptdoctor seal checkpoint/ --format openssf"),
)


@click.command("seal", cls=Command, examples=_EXAMPLES)
@click.argument("path", shell_complete=files)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    shell_complete=files,
    help="The seal to write.  [default: PATH.seal.json, or ckptdoctor.seal.json in a folder]",
)
@click.option(
    "--parity",
    metavar="PERCENT",
    help="Also write PATH.parity, as large as this share of the file, from which ckptdoctor rebuild restores lost "
    "blocks.",
)
@click.option("--force", is_flag=True, help="Replace an existing seal, and its parity.")
@click.option(
    "--format",
    "style",
    type=Choice(["full", "json", "openssf"]),
    default="full",
    show_default=True,
    help="Output format; openssf writes PATH.openssf.json instead of a seal.",
)
@quiet
@color
def command(path: str, output: str | None, parity: str | None, force: bool, style: str, color: str) -> ExitStatus:
    """Write the hashes of a checkpoint next to it.

    One read makes the SHA-256 of each file, of each tensor, and of each MiB of a tensor. Later, ckptdoctor verify and
    check --deep compare the bytes with these hashes, and name the tensors that changed. A seal does not prove that the
    bytes were good when it was made. A folder is sealed as a whole, without .git, .cache and the trash of prune,
    and without folders elsewhere that it only links to: these are listed.

    With --parity, from 0.5% to 100%, a second read makes a parity file next to each file. From it, ckptdoctor rebuild
    restores blocks that are damaged or cut off later, up to the limit that is printed. It needs the package zfec:
    pip install 'ckptdoctor[parity]'.

    Exit status: 0 sealed, 2 invalid usage, an unreadable path, or a seal that cannot be written.
    """
    from ckptdoctor.rendering import seal as shown
    from ckptdoctor.sealing.parity.layout import percent_of
    from ckptdoctor.sealing.seal import seal

    share = None if parity is None else percent_of(parity)
    with drawn(NOTHING_WRITTEN):
        report = seal(path, output, form="openssf" if style == "openssf" else "ckptdoctor", force=force, parity=share)
    if style == "json":
        from ckptdoctor import __version__

        emit(shown.sealed_json(report, __version__))
    else:
        succeed(shown.sealed(report, paint(color)))
    return ExitStatus.CLEAN
