"""Folders of which a file is cut off: which tensors that tears, and what saves the others."""

from __future__ import annotations

import os
from collections.abc import Collection
from shlex import quote

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Storage, addresses
from ckptdoctor.facts.aliasing import leaves

# folders that are salvaged as a whole; of others, one names the file
_WHOLE = ("sharded Hugging Face checkpoint", "Hugging Face model folder")


def torn_by_file(checkpoint: Checkpoint, files: Collection[str]) -> dict[str, tuple[KeyPath, ...]]:
    """The tensors of which bytes are missing, by which of these files of the folder they should lie in."""
    torn: dict[str, dict[KeyPath, None]] = {file: {} for file in files}
    for tensor in leaves(checkpoint.tensors):
        storage = tensor.storage
        if storage is None or not _is_torn(storage):
            continue
        file = next((each for each in files if storage.key.startswith(f"{each}/")), None)
        if file is not None:
            torn[file][tensor.path] = None
    return {file: tuple(paths) for file, paths in torn.items()}


def _is_torn(storage: Storage) -> bool:
    there = 0 if storage.extent is None else storage.extent.length
    return there < storage.nbytes and not (storage.compressed and there)


def is_salvaged_whole(checkpoint: Checkpoint) -> bool:
    """Whether ``salvage`` takes the folder: each shard by itself, and a new index."""
    return checkpoint.format in _WHOLE and not addresses.is_address(checkpoint.path)


def salvage_advice(checkpoint: Checkpoint, file: str) -> str:
    """The command that saves what is whole where ``file`` of the folder is damaged, as a sentence."""
    if is_salvaged_whole(checkpoint):
        return "If there is no other copy: ckptdoctor salvage FILE saves every tensor that is whole, in a new folder."
    path = quote(to_salvage(checkpoint, file))
    return f"If there is no other copy: “ckptdoctor salvage {path}” saves every tensor in front of the cut."


def to_salvage(checkpoint: Checkpoint, member: str | None) -> str:
    """The path to give to ``salvage`` where ``member`` is damaged: of most folders the file that it is, or lies in."""
    if not os.path.isdir(checkpoint.path) or is_salvaged_whole(checkpoint) or member is None:
        return checkpoint.path
    path = os.path.join(checkpoint.path, member)
    while not os.path.lexists(path) and len(path) > len(checkpoint.path):  # a record of a file
        path = os.path.dirname(path)
    return path
