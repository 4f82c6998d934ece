"""Legacy files written by torch itself."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, FileSource
from ckptdoctor.edits import Edit
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.writing import Copy, Generated, Recipe
from tests.builders import saving_tags


def legacy_bytes(value: object, protocol: int = 2) -> bytes:
    """The value as torch.save wrote it before version 1.6."""
    buffer = io.BytesIO()
    with saving_tags():
        torch.save(value, buffer, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def save(value: object, path: Path) -> Path:
    path.write_bytes(legacy_bytes(value))
    return path


def read(path: Path) -> Checkpoint:
    with FileSource(path) as source:
        container = formats.examine(source)
        assert container.format == "torch legacy"
        return formats.read(source, container)


def rewritten(path: Path, edits: Sequence[Edit]) -> Path:
    """The file with the edits applied, as the recipe says."""
    with FileSource(path) as source:
        recipe = formats.write(wanted_of(read(path), edits), source)
    target = path.with_suffix(".out")
    target.write_bytes(bytes_of(recipe))
    return target


def bytes_of(recipe: Recipe) -> bytes:
    parts = []
    with FileSource(recipe.source) as source:
        for segment in recipe.segments:
            if isinstance(segment, Copy):
                parts.append(source.read(segment.offset, segment.length))
            elif isinstance(segment, Generated):
                parts += segment.chunks()
            else:
                parts.append(segment.data)
            assert sum(map(len, parts)) is not None
    made = b"".join(parts)
    assert len(made) == recipe.size
    return made
