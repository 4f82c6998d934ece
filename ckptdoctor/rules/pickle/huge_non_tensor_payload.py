"""A large part of the file is neither tensors nor their names: a history, a dataset, a tokenizer, a replay buffer.

Meaning
    Lists of numbers, long texts or arrays were saved as Python objects with the weights.

Why it matters
    Objects are read one by one into memory, even if you need none of them: a list of a million floats takes 9 MB in the
    file, 32 MB in memory, and about a second. They cannot be memory-mapped.

Symptoms
    Nothing: loading takes a long time, and a lot of memory.

Detection
    The sizes in the pickle of all values without tensors are added up. From a tenth of the file (and 1 MB) it is info,
    and a warning where it is more than half of the file and 16 MB.

Repair
    No automatic one: the finding gives the command that leaves the largest values out. Or save them elsewhere, long
    lists of numbers as tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import (
    Checkpoint,
    KeyPath,
    Mapping,
    Named,
    Node,
    Opaque,
    Sequence,
    Tensor,
    children,
    show_path,
)
from ckptdoctor.findings import Severity
from ckptdoctor.noun import noun
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import more_than_tensors
from ckptdoctor.shell import word

LITTLE = 1_000_000  # bytes that are worth a word
MUCH = 16_000_000  # and a warning
_NAMED = 3
_SMALL = 10_000  # values below that are not added up
SICK = (
    Example("a long string next to the weights", {"model": {"w": T((3,))}, "notes": "word " * 300_000}),
    Example("a long history", {"model": {"w": T((3,))}, "history": {"loss": [0.5] * 150_000}}),
)
HEALTHY = (
    Example("a short history", {"model": {"w": T((3,))}, "history": {"loss": [0.5] * 100}}),
    Example("large tensors", {"w": T((500_000,))}),
)


@rule("P212", "huge-non-tensor-payload", Severity.INFO, when=more_than_tensors)
def huge_non_tensor_payload(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report large values that are not tensors."""
    if not checkpoint.tensors:
        return
    found = large_values(checkpoint, _SMALL)
    total = sum(each.nbytes for each in found)
    if total < LITTLE or total * 10 < checkpoint.size:
        return
    yield Problem(
        message=f"{_size(total)} of {_size(checkpoint.size)} are neither tensors nor their names: {_places(found)}",
        cause="They were saved as Python objects, which torch.load reads one by one into memory.",
        advice=f"Save them elsewhere, long lists of numbers as tensors. To leave the largest out: {_command(found)}",
        keys=tuple([each.path for each in found[:_NAMED]]),
        severity=Severity.WARNING if total >= MUCH and 2 * total > checkpoint.size else Severity.INFO,
    )


def _places(found: list[LargeValue]) -> str:
    return wording.listed(found, _NAMED, say=lambda each: f"{show_path(each.path)} ({_size(each.nbytes)})")


def _command(found: list[LargeValue]) -> str:
    from glob import escape

    patterns = [word(escape(show_path(each.path))) for each in found[:_NAMED]]
    return f"ckptdoctor fix FILE {' '.join([f'--drop {pattern}' for pattern in patterns])}"


def _size(nbytes: int) -> str:
    return f"{nbytes / 1_000_000:,.1f} MB"


# How much of a checkpoint is neither tensors nor their names, and where it lies

_HEAD = 5  # opcode and count of a text in a pickle
_FLOAT = 9
_HOLDERS = (Mapping, Sequence, Opaque)


@noun
class LargeValue:
    """A value without tensors under a key of a dict, and about how many bytes its pickle takes."""

    path: KeyPath
    nbytes: int


def large_values(checkpoint: Checkpoint, least: int) -> list[LargeValue]:
    """Return the largest values without tensors, from ``least`` bytes on, largest first; each under a key of a dict."""
    stored = sum(storage.extent.length for storage in checkpoint.storages if storage.extent is not None)
    if checkpoint.size - stored < least and not any(storage.compressed for storage in checkpoint.storages):
        return []
    sizes = _sizes(checkpoint.tree)
    found: list[LargeValue] = []
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
                found.append(LargeValue((*path, part), size))
    return sorted(found, key=lambda each: -each.nbytes)


def _sizes(tree: Node) -> dict[int, tuple[int, bool]]:
    """Return about how many bytes each dict, list and object takes, by id, and whether a tensor is in it."""
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
    """Return about how many bytes a value without others takes in a pickle."""
    if isinstance(node, float):
        return _FLOAT
    if isinstance(node, (str, bytes)):
        return len(node) + _HEAD
    if isinstance(node, int):
        return node.bit_length() // 8 + 2
    return len(node.name) if isinstance(node, Named) else 1
