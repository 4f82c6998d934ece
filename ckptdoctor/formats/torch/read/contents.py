"""What a pickle of torch holds, and what the container around it must offer."""

from __future__ import annotations

from typing import Protocol

from ckptdoctor.checkpoint import DType, GlobalName, Node, Note, StateDict, Storage, Tensor
from ckptdoctor.noun import noun

ZIP_ID = 5  # ('storage', class, key, location, numel)
LEGACY_ID = 6  # and (key, offset, size) of a view, or None


class StorageTable(Protocol):
    """The storages of one container.

    ``id_parts`` is how many parts torch takes a persistent id in it apart into: see ``ZIP_ID`` and ``LEGACY_ID``.
    """

    id_parts: int

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        """The storage that the pickle names ``key``; asked once for each. ``nbytes`` is what the pickle declares."""


@noun
class Contents:
    """The nouns that one pickle describes; ``storages`` stand in the order in which the pickle first uses them."""

    tree: Node
    tensors: tuple[Tensor, ...]
    storages: tuple[Storage, ...]
    state_dicts: tuple[StateDict, ...]
    globals: tuple[GlobalName, ...]
    notes: tuple[Note, ...]
