"""Entries that a training left at the top of a file, next to the weights: counters, and states of ``GradScaler``."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node

LIGHTNING = "pytorch-lightning_version"
_SCALER = frozenset({"scale", "growth_factor", "backoff_factor", "growth_interval"})
_BEYOND = 10**18  # what no counter reaches
_NEAR = 256  # entries of a dict that are looked at for what lies in it


def as_number(node: Node) -> float | None:
    """A plain number; None for anything else, a tensor among them, and for integers beyond all measure."""
    if isinstance(node, float):
        return node
    return float(node) if isinstance(node, int) and is_count(node) else None


def is_count(node: Node) -> bool:
    """Whether it is an integer that can be a counter."""
    return type(node) is int and abs(node) < _BEYOND


def top(checkpoint: Checkpoint) -> dict[str, Node]:
    """The entries at the top of the file; none where there are as many as tensors have."""
    tree = checkpoint.tree
    if not isinstance(tree, Mapping) or len(tree.entries) > _NEAR:
        return {}
    return {part: node for part, node in tree.entries if isinstance(part, str)}


def scalers(checkpoint: Checkpoint) -> Iterator[tuple[KeyPath, float]]:
    """The states of ``GradScaler`` near the top of the file, each with its scale."""
    for name, node in top(checkpoint).items():
        below: list[tuple[KeyPath, Node]] = [((name,), node)]
        if isinstance(node, Mapping) and len(node.entries) <= _NEAR:
            below += [((name, part), child) for part, child in node.entries]
        for path, each in below:
            if isinstance(each, Mapping) and len(each.entries) <= _NEAR:
                parts = dict(each.entries)
                scale = as_number(parts.get("scale"))
                if parts.keys() >= _SCALER and scale is not None:
                    yield path, scale
