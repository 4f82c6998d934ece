"""Whether two trained files differ in nothing but rounding.

Processors round the sums of a training run differently, so the same run gives other last bits elsewhere. Everything
else has to be the same: every byte of a header, every opcode of a pickle but for its floating-point numbers, every
key, shape, dtype and device tag, and every size.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import pickletools
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ckptdoctor.loading import Inert, load

TOLERANCE = 1e-3
A_WHOLE_IMAGE = frozenset({"best_accuracy"})  # an accuracy jumps where the rounding of two logits changes their order
LEGACY_PICKLES = 5  # magic number, protocol, the system, the object, the keys of the storages; raw storages follow


def difference(one: Path, other: Path) -> str | None:
    """What tells the files apart beyond rounding, in a word or two; None when nothing does."""
    if one.read_bytes() == other.read_bytes():
        return None
    if one.suffix == ".json":
        return None if close(truth(one), truth(other)) else "truth"
    if one.stat().st_size != other.stat().st_size:
        return "size"
    if one.suffix == ".distcp":
        return difference_of_shards(one, other)
    if skeleton(one) != skeleton(other):
        return "structure"
    return None if close(load(one), load(other)) else "values"


def truth(path: Path) -> dict[str, Any]:
    """What truth.json says, less the checksums, which change with the least bit, and for what torch was built."""
    told = json.loads(path.read_text(encoding="utf-8"))
    told["made"]["torch"] = told["made"]["torch"].partition("+")[0]
    for file in told["files"].values():
        del file["sha256"]
    return told


def skeleton(path: Path) -> list[Any]:
    """All of a file that is no number of the model; of a file that cannot be taken apart, all."""
    data = path.read_bytes()
    if path.suffix == ".safetensors":
        return [data[: 8 + int.from_bytes(data[:8], "little")]]
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(each.filename, each.header_offset, each.file_size) for each in archive.infolist()]
            return [members, *opcodes(io.BytesIO(archive.read(f"{path.stem}/data.pkl")))]
    if path.suffix == ".pt":
        stream = io.BytesIO(data)
        return [list(opcodes(stream)) for _ in range(LEGACY_PICKLES)]
    return [data]


def opcodes(stream: io.BytesIO) -> Iterator[tuple[str, Any]]:
    """The opcodes of a pickle with their arguments, but for floating-point numbers."""
    for opcode, argument, _ in pickletools.genops(stream):
        yield opcode.name, None if isinstance(argument, float) else argument


def difference_of_shards(one: Path, other: Path) -> str | None:
    """The same for a file of a distributed checkpoint, which is many archives end to end; ``.metadata`` says where."""
    placed = pickle.loads((one.parent / ".metadata").read_bytes()).storage_data.values()
    with TemporaryDirectory() as folder:
        parts = {whole: Path(folder) / name / "archive.pt" for name, whole in (("one", one), ("other", other))}
        for part in parts.values():
            part.parent.mkdir()
        for place in (each for each in placed if each.relative_path == one.name):
            for whole, part in parts.items():
                part.write_bytes(whole.read_bytes()[place.offset : place.offset + place.length])
            if found := difference(*parts.values()):
                return found
    return None


def close(one: Any, other: Any) -> bool:
    """Whether contents are the same in everything but numbers, and close in numbers."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return close_tensors(one, other)
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(close(one[key], other[key]) for key in one if key not in A_WHOLE_IMAGE)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, Inert):
        return all(close(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(one == other)


def close_tensors(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether tensors have one shape, dtype and layout in memory, and close values; whole numbers must be equal."""
    if (one.shape, one.dtype, one.stride()) != (other.shape, other.dtype, other.stride()):
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
