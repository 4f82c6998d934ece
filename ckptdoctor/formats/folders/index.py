"""Reads the index of a sharded checkpoint: which tensor lies in which file."""

from __future__ import annotations

import json

from ckptdoctor.checkpoint import FolderSource
from ckptdoctor.checkpoint.folder import MOST_NAMES
from ckptdoctor.errors import DamagedError, HostileError
from ckptdoctor.noun import noun

# half a million entries of 130 bytes
LONGEST = 64 << 20


@noun
class Index:
    """What an index says: tensor → file, and the bytes of all tensors together (None: it does not say).

    ``files`` are those that it names, in order, with how many tensors it looks for in each.
    """

    name: str
    weight_map: dict[str, str]
    files: dict[str, int]
    total_size: int | None


def read_index(folder: FolderSource, name: str) -> Index:
    """The index ``name``. Raises DamagedError when it is none, and UnreadableError when it cannot be opened."""
    source = folder.open(name)
    if source.size > LONGEST:
        raise HostileError(f"{name} has {source.size:,} bytes; no index of a checkpoint is that long.", member=name)
    try:
        said = json.loads(source.read(0, source.size))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{name} is no JSON: {_short(str(error))}.", member=name) from error
    table = said.get("weight_map") if isinstance(said, dict) else None
    if not isinstance(table, dict) or not all(isinstance(file, str) for file in table.values()):
        raise DamagedError(f"{name} has no weight_map from the names of tensors to those of files.", member=name)
    metadata = said.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    whole = isinstance(total, (int, float)) and not isinstance(total, bool) and total == total // 1
    files: dict[str, int] = {}
    for file in table.values():
        files[file] = files.get(file, 0) + 1
    if len(files) > MOST_NAMES:
        raise HostileError(f"{name} names {len(files):,} files; no checkpoint has so many.", member=name)
    return Index(name, table, files, int(total) if whole and total is not None else None)


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:99]}…"
