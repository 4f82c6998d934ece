"""Makes safetensors files by hand, sound and broken, and asks safetensors itself about them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from safetensors import SafetensorError, deserialize

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Container, FileSource
from ckptdoctor.edits import Edit
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.writing import Generated, Literal, Recipe


def raw(header: str | bytes, data: bytes = b"") -> bytes:
    """A file with this header, as it stands."""
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text)) + text + data


def file(entries: dict[str, object], data: bytes = b"") -> bytes:
    """A file whose header is these entries as compact JSON."""
    return raw(json.dumps(entries, separators=(",", ":")), data)


def entry(begin: int, end: int, dtype: str = "U8", shape: list[int] | None = None) -> dict[str, object]:
    """The description of a tensor; without a shape it is a flat row of bytes."""
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def accepted(data: bytes) -> bool:
    """Whether safetensors itself reads the file."""
    try:
        deserialize(data)
    except SafetensorError:
        return False
    return True


def opened(data: bytes, folder: Path) -> Checkpoint:
    """The checkpoint that we read."""
    return formats.open_checkpoint(written(data, folder))


def examined(data: bytes, folder: Path) -> Container:
    """The container that we see."""
    with FileSource(written(data, folder)) as source:
        return formats.examine(source)


def written(data: bytes, folder: Path) -> Path:
    """The bytes as a file."""
    path = folder / "model.safetensors"
    path.write_bytes(data)
    return path


def rewritten(path: Path, *edits: Edit) -> bytes:
    """The bytes that the recipe for these edits gives."""
    with FileSource(path) as source:
        checkpoint = formats.read(source, formats.examine(source))
        return made(formats.write(wanted_of(checkpoint, edits), source), path.read_bytes())


def made(recipe: Recipe, original: bytes) -> bytes:
    """The output of a recipe."""
    parts = []
    for segment in recipe.segments:
        if isinstance(segment, Literal):
            parts.append(segment.data)
        elif isinstance(segment, Generated):
            parts += segment.chunks()
        else:
            assert segment.offset + segment.length <= len(original)
            parts.append(original[segment.offset : segment.offset + segment.length])
    return b"".join(parts)
