"""``ckptdoctor merge`` writes the shards of a checkpoint as one file."""

from __future__ import annotations

import glob
import os

import click

from ckptdoctor.checkpoint.missing import missing
from ckptdoctor.checkpoint.natural import in_order
from ckptdoctor.cli.command import Command
from ckptdoctor.cli.convert import carried_out, shard_size_of
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, quiet
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.errors import UsageError

_EXAMPLES = (
    ("The shards of a folder into one file", "ckptdoctor merge checkpoint/ -o merged.safetensors"),
    (
        "Parts of a model, each under a name",
        "ckptdoctor merge --part encoder=before.pt --part decoder=base.pt -o all.pt",
    ),
)


@click.command("merge", cls=Command, examples=_EXAMPLES)
@click.argument("paths", nargs=-1, shell_complete=files)
@click.option(
    "--part",
    "parts",
    metavar="NAME=FILE",
    multiple=True,
    shell_complete=files,
    help='A file that holds one part of a model; its keys are prefixed with "NAME."; repeatable.',
)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    required=True,
    shell_complete=files,
    help="The output: OUT.safetensors, OUT.pt, or a folder.",
)
@click.option("--shard-size", metavar="SIZE", help="Write a folder of files of at most this size each, such as 5GB.")
@click.option("--force", is_flag=True, help="Replace an existing output, and allow the same weights under two names.")
@as_json
@quiet
@color
def command(
    paths: tuple[str, ...],
    parts: tuple[str, ...],
    output: str,
    shard_size: str | None,
    force: bool,
    style: str,
    color: str,
) -> ExitStatus:
    """Merge the files of a checkpoint into one.

    PATHS are a folder of shards, or files or patterns whose keys are put together: a key that is in two of them must
    have the same values, and files with the same weights under different names are refused. Parts of a model that were
    saved separately are given by name: --part encoder=e.pt --part decoder=d.pt. The output is verified before it gets
    its name.

    Exit status: 0 merged, 1 refused, 2 invalid usage or an unreadable path.
    """
    if not paths and not parts:
        raise UsageError("Nothing to merge. Name files, a folder, or --part NAME=FILE.")
    named = [_part(text) for text in parts]
    files = _files(paths)
    names = ("",) * len(files) + tuple([name for name, _ in named])
    given = (*files, *[path for _, path in named])
    request = ConvertRequest(given, output, shard_size_of(shard_size), force=force, names=names)
    return carried_out(request, style, color)


def _part(text: str) -> tuple[str, str]:
    """Return name and file of ``NAME=FILE``. Raises UsageError for anything else."""
    name, sign, path = text.partition("=")
    if not sign or not path or not all(name.split(".")):
        raise UsageError(f'--part: "{text}" is not NAME=FILE. Use --part encoder=encoder.pt.')
    if not os.path.exists(path):
        raise missing(path)
    return name, path


def _files(paths: tuple[str, ...]) -> list[str]:
    """Return the files that the paths and patterns name, each once."""
    found: list[str] = []
    for path in paths:
        matches = [path] if os.path.exists(path) else in_order(glob.glob(path, recursive=True))
        if not matches:
            raise missing(path)
        found += matches
    return list(dict.fromkeys(found))
