"""Publishes a folder of files: it is completed and verified next to its place, and then moved there in one step."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from time import perf_counter

from ckptdoctor.checkpoint import FileIdentity
from ckptdoctor.errors import WriteError
from ckptdoctor.noun import replace
from ckptdoctor.wording import and_more
from ckptdoctor.writing import Part, publish_together
from ckptdoctor.writing.interrupts import cleaned_up
from ckptdoctor.writing.system import sync_directory
from ckptdoctor.writing.target import Target, require_folder
from ckptdoctor.writing.unfinished import sweep, temporary_folder

# files that loaders take for weights, or for the list of them
_WEIGHTS = re.compile(
    r"model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json|__\d+_\d+\.distcp|\.metadata"
)


def publish_folder(parts: Sequence[Part], output: str, *, force: bool, identity: FileIdentity | None) -> float:
    """Write the files of a folder, which is new, or with ``force`` one that is there; seconds that it took.

    In a folder that is there only files of the same names are replaced. Raises WriteError where it holds other weights,
    which loaders would take for part of these; and what ``publish_together`` raises.
    """
    started = perf_counter()
    path = os.path.realpath(output)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise WriteError(f"{output} is a file; give the name of a folder.")
    if os.path.isdir(path) and os.listdir(path):
        _require_room(parts, path, output, force)
        publish_together(parts, force=force, identity=identity)
        return perf_counter() - started
    require_folder(output)
    _publish_new(parts, path, output, identity)
    return perf_counter() - started


def _require_room(parts: Sequence[Part], path: str, output: str, force: bool) -> None:
    if not force:
        raise WriteError(
            f"{output} already exists and is not empty; give another folder, or write into it with --force."
        )
    ours = {os.path.basename(part.output) for part in parts}
    stale = sorted(name for name in os.listdir(path) if _WEIGHTS.fullmatch(name) and name not in ours)
    if stale:
        names = and_more(stale, 1, spelt=str)
        raise WriteError(f"{output} holds other weights ({names}); delete them, or give another folder.")


def _publish_new(parts: Sequence[Part], path: str, output: str, identity: FileIdentity | None) -> None:
    parent = os.path.dirname(path)
    sweep(parent)
    try:
        with cleaned_up(), temporary_folder(Target(path, parent, replaces=False)) as beside:
            moved = [replace(part, output=os.path.join(beside, os.path.basename(part.output))) for part in parts]
            try:
                publish_together(moved, identity=identity)
                _take_the_place(beside, path)
            except WriteError as error:  # of the name that was asked for, which nobody has seen another one of
                raise WriteError(error.message.replace(beside, output.rstrip(os.sep)), offset=error.offset) from error
        sync_directory(parent)
    except OSError as error:
        raise WriteError(f"{output} could not be written: {error.strerror or error}. Give another folder.") from error


def _take_the_place(folder: str, path: str) -> None:
    """Give the folder the name ``path``, which an empty folder may have had, and nothing else."""
    try:
        os.rename(folder, path)
    except FileExistsError:  # Windows does not even replace an empty one
        os.rmdir(path)
        os.rename(folder, path)
