"""Knows what the texts of safetensors' ``__metadata__`` are about, and joins those of several files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from ckptdoctor.checkpoint.keypath import KeyPath
from ckptdoctor.checkpoint.tensor import Tensor
from ckptdoctor.checkpoint.tree import Mapping as Entries
from ckptdoctor.checkpoint.tree import Node

MODEL: KeyPath = ("model",)
COUNTED = frozenset({"total_size", "total_parameters"})  # what an index says that follows from the tensors

T = TypeVar("T")


def joined(texts: Iterable[Mapping[str, T] | None]) -> tuple[dict[str, T] | None, tuple[str, ...]]:
    """Return the entries of all (None where there are none), and the names of those that have several values.

    Those are in the first no longer: nothing says which of the values is the right one.
    """
    found: dict[str, T] | None = None
    disputed: dict[str, None] = {}
    for each in texts:
        if each is None:
            continue
        found = {} if found is None else found
        for key, text in each.items():
            if found.setdefault(key, text) != text:
                disputed[key] = None
    if found is not None:
        found = {key: text for key, text in found.items() if key not in disputed}
    return found, tuple(disputed)


def place_of_metadata(tree: Node) -> KeyPath:
    """Return where the state dict is that the metadata is about: at the root, or below ``model`` in a run's folder."""
    if not isinstance(tree, Entries) or any(isinstance(child, Tensor) for _, child in tree.entries):
        return ()
    return MODEL if any(part == MODEL[0] and isinstance(child, Entries) for part, child in tree.entries) else ()


def holds_described(tree: Node, path: KeyPath) -> bool:
    """Return whether the part at ``path`` has the state dict that the metadata is about, or something of it."""
    return all(one == other for one, other in zip(place_of_metadata(tree), path, strict=False))


def is_tie(alias: str, owner: str, keys: Collection[object]) -> bool:
    """Return whether an entry says, as ``safetensors.torch.save_model`` does, that a tensor has a second name."""
    return owner in keys and alias not in keys and alias != "format"
