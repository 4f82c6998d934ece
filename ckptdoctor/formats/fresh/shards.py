"""Tensors in several files and the index that says which is where, as transformers writes and reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ckptdoctor.formats.fresh.safetensors import Entry
from ckptdoctor.noun import noun

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


@noun
class Shard:
    """One file of a folder, and the tensors in it."""

    name: str
    entries: tuple[Entry, ...]


def split(entries: Sequence[Entry], most: int) -> list[Shard]:
    """The entries in files of at most ``most`` bytes each, in their order; a larger tensor gets a file of its own.

    As ``huggingface_hub.split_torch_state_dict_into_shards`` does.
    """
    groups: list[list[Entry]] = []
    current: list[Entry] = []
    held = 0
    for entry in entries:
        if entry.nbytes > most:
            groups.append([entry])
            continue
        if current and held + entry.nbytes > most:
            current, held = [], 0
        if not current:
            groups.append(current)
        current.append(entry)
        held += entry.nbytes
    count = len(groups)
    if count == 1:
        return [Shard(SINGLE, tuple(groups[0]))]
    return [Shard(f"model-{at:05d}-of-{count:05d}.safetensors", tuple(each)) for at, each in enumerate(groups, 1)]


def index_of(shards: Sequence[Shard]) -> bytes:
    """``model.safetensors.index.json`` as transformers writes it."""
    total = sum(entry.nbytes for shard in shards for entry in shard.entries)
    where = {entry.name: shard.name for shard in shards for entry in shard.entries}
    return index_text(where, total)


def index_text(where: Mapping[str, str], total: int) -> bytes:
    """The same of a table from keys to files, and the bytes of all tensors."""
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2, sort_keys=True)
    return (text + "\n").encode()
