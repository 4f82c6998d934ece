"""Reads the written file again and holds it against the recipe, byte for byte."""

from __future__ import annotations

import os

from ckptdoctor.checkpoint.descriptors import read_at
from ckptdoctor.errors import WriteError
from ckptdoctor.wording import plural
from ckptdoctor.writing.blocks import Reading, blocks
from ckptdoctor.writing.filling import Done
from ckptdoctor.writing.originals import Originals
from ckptdoctor.writing.recipe import Recipe


def compare(recipe: Recipe, files: Originals, target: int, done: Done | None = None) -> None:
    """Raises WriteError with the first block of ``target`` that is not what ``recipe`` makes of ``files``."""
    if os.fstat(target).st_size != recipe.size:
        raise WriteError(
            f"The output has {plural(os.fstat(target).st_size, 'byte')} instead of {recipe.size}; it was thrown away."
        )
    at = 0
    for block in blocks(recipe.segments, Reading(files)):
        if _read(target, len(block), at) != block:
            raise WriteError(
                f"The output differs from what was meant within {plural(len(block), 'byte')} from byte {at};"
                " it was thrown away. The disk or the memory may be faulty.",
                offset=at,
            )
        at += len(block)
        if done is not None:
            done(at)
    if at != recipe.size:
        raise WriteError(
            f"{plural(at, 'byte was', 'bytes were')} verified instead of {recipe.size}; the output was thrown away."
        )


def _read(fd: int, length: int, offset: int) -> bytes:
    data = read_at(fd, length, offset)
    while len(data) < length:
        more = read_at(fd, length - len(data), offset + len(data))
        if not more:
            return data
        data += more
    return data
