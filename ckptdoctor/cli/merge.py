"""``ckptdoctor merge`` writes the shards of a checkpoint as one file."""

from __future__ import annotations

import glob
import os

import click

from ckptdoctor.cli.convert import carried_out, shard_size_of
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, as_json, color
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.errors import UnreadableError, UsageError


@click.command("merge", context_settings=SHORT_HELP)
@click.argument("paths", nargs=-1)
@click.option(
    "--part",
    "parts",
    metavar="NAME=FILE",
    multiple=True,
    help="A file that holds one part of a model: its keys get NAME before them. Repeatable.",
)
@click.option("-o", "--output", metavar="OUT", required=True, help="What to write: OUT.safetensors, OUT.pt, a folder.")
@click.option("--shard-size", metavar="SIZE", help="Write a folder of files of at most this size each: 5GB.")
@click.option("--force", is_flag=True, help="Replace an existing output, and write the same weights twice if need be.")
@as_json
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
    """Put the files of a checkpoint together.

    PATHS are a folder of shards, or files or patterns whose keys are put together: a key that is in two of them must
    have the same values, and files with the same weights under different names are refused. Parts of a model that were
    saved each by itself are named: --part encoder=e.pt --part decoder=d.pt. The output is verified before it gets its
    name. Exit status: 0 merged, 1 refused, 2 the request makes no sense, or a path cannot be read.
    """
    if not paths and not parts:
        raise UsageError("Name what is put together: files, a folder, or --part NAME=FILE.")
    named = [_part(text) for text in parts]
    files = _files(paths)
    names = ("",) * len(files) + tuple([name for name, _ in named])
    given = (*files, *[path for _, path in named])
    request = ConvertRequest(given, output, shard_size_of(shard_size), force=force, names=names)
    return carried_out(request, style, color)


def _part(text: str) -> tuple[str, str]:
    """``NAME=FILE``. Raises UsageError for anything else."""
    name, sign, path = text.partition("=")
    if not sign or not path or not all(name.split(".")):
        raise UsageError(f"--part wants NAME=FILE, such as encoder=encoder.pt; “{text}” is something else.")
    if not os.path.exists(path):
        raise UnreadableError(f"There is no file {path}.")
    return name, path


def _files(paths: tuple[str, ...]) -> list[str]:
    """The files that the paths and patterns name, each once."""
    found: list[str] = []
    for path in paths:
        matches = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
        if not matches:
            raise UnreadableError(f"There is no file {path}.")
        found += matches
    return list(dict.fromkeys(found))
