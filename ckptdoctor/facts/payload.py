"""How much of a checkpoint is neither tensors nor their names, and where it lies."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Named, Node, Opaque, Sequence, Tensor, children
from ckptdoctor.noun import noun

_HEAD = 5  # opcode and count of a text in a pickle
_FLOAT = 9
_HOLDERS = (Mapping, Sequence, Opaque)


@noun
class Payload:
    """A value without tensors under a key of a dict, and about how many bytes its pickle takes."""

    path: KeyPath
    nbytes: int


def payloads(checkpoint: Checkpoint, least: int) -> list[Payload]:
    """The largest values without tensors, from ``least`` bytes on, largest first; each under a key of a dict."""
    stored = sum(storage.extent.length for storage in checkpoint.storages if storage.extent is not None)
    if checkpoint.size - stored < least and not any(storage.compressed for storage in checkpoint.storages):
        return []
    sizes = _sizes(checkpoint.tree)
    found: list[Payload] = []
    stack: list[tuple[KeyPath, Node]] = [((), checkpoint.tree)]
    while stack:
        path, node = stack.pop()
        for part, child in children(node):
            if isinstance(child, Tensor):
                continue
            size, tensors = sizes.get(id(child)) or (_leaf(child), False)
            if tensors:
                stack.append(((*path, part), child))
            elif size >= least and isinstance(node, Mapping):
                found.append(Payload((*path, part), size))
    return sorted(found, key=lambda each: -each.nbytes)


def _sizes(tree: Node) -> dict[int, tuple[int, bool]]:
    """For each dict, list and object, by id: about how many bytes it takes, and whether a tensor is in it."""
    sizes: dict[int, tuple[int, bool]] = {}
    stack: list[tuple[Node, bool]] = [(tree, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            sizes[id(node)] = _added(node, sizes)
        elif id(node) not in sizes:
            stack.append((node, True))
            stack.extend([(child, False) for _, child in children(node) if isinstance(child, _HOLDERS)])
    return sizes


def _added(node: Node, sizes: dict[int, tuple[int, bool]]) -> tuple[int, bool]:
    total, tensors = 1, False
    for part, child in children(node):
        if isinstance(child, Tensor):
            tensors = True
            continue
        size, below = sizes.get(id(child)) or (_leaf(child), False)
        total += size + (len(part) + _HEAD if isinstance(part, str) else 0)
        tensors |= below
    return total, tensors


def _leaf(node: Node) -> int:
    """About how many bytes a value without others takes in a pickle."""
    if isinstance(node, float):
        return _FLOAT
    if isinstance(node, (str, bytes)):
        return len(node) + _HEAD
    if isinstance(node, int):
        return node.bit_length() // 8 + 2
    return len(node.name) if isinstance(node, Named) else 1
