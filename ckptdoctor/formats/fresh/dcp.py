"""Lays out folders of torch.distributed.checkpoint: one ``.distcp`` file, and ``.metadata``, which says what is where.

Each value is an archive of its own in the file, as ``torch.save`` writes it; tensors hold just their own elements.
"""

from __future__ import annotations

from collections.abc import Mapping as AnyMapping
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Storage, Tensor, walk
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.changed_trees import mapped, tensors_in
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.formats.folders.dcp import NAME
from ckptdoctor.formats.fresh.checksums import checksums
from ckptdoctor.formats.fresh.composed import Composed, Stored
from ckptdoctor.formats.fresh.dcp_flat import Flat, Steps, Value, flat
from ckptdoctor.formats.fresh.dcp_metadata import Saved, metadata
from ckptdoctor.formats.fresh.pickling import dtype_of, pickled
from ckptdoctor.formats.fresh.strided import length, segments
from ckptdoctor.formats.fresh.torch_zip import Storages, archive, torch_tensor
from ckptdoctor.noun import noun
from ckptdoctor.writing.recipe import Copy, Literal, Recipe, Segment

DATA, METADATA = "__0_0.distcp", ".metadata"

_FOLDER = "archive"  # what torch.save calls it where it writes into no file


@noun
class Written:
    """One value of the file: what it is as it is written, and the storages that it got."""

    value: Value
    node: Node
    storages: OwnElements


class OwnElements(Storages):
    """Storages that hold the elements of one tensor each, and nothing else.

    They are asked for with tensors as they are written; ``originals`` are what these were, by their paths.
    """

    def __init__(self, originals: AnyMapping[KeyPath, Tensor], swapped: bool) -> None:
        super().__init__(swapped)
        self._originals = originals

    def _identity(self, tensor: Tensor) -> object:
        return tensor.path

    def _stored(self, tensor: Tensor, key: str) -> Stored:
        original = self._originals[tensor.path]
        data = segments(original, self._swapped)
        return Stored(key, length(original), data, _known(original, data), original)


def _known(tensor: Tensor, data: Sequence[Segment]) -> int | None:
    """The checksum of the elements where it is that of the whole storage."""
    storage = tensor.storage
    if storage is None or storage.extent is None or storage.compressed or len(data) != 1:
        return None
    (only,) = data
    whole = isinstance(only, Copy) and (only.offset, only.length) == (storage.extent.offset, storage.extent.length)
    return storage.crc32 if whole else None


def composed(tree: Node, root: KeyPath, source: str, swapped: bool = False) -> tuple[Composed, Flat]:
    """A folder with these contents, and what cannot be kept of them. Raises RefusedError for what has no place there.

    Values without a known checksum are read for theirs.
    """
    apart = flat(tree, root)
    written = [_written(value, swapped) for value in apart.values]
    heads = [pickled(each.node, each.storages) for each in written]
    unknown = [stored.data for each in written for stored in each.storages.found if stored.crc is None]
    sums = iter(checksums(unknown))
    data: list[Segment] = []
    saved: list[Saved] = []
    at = 0
    for each, head in zip(written, heads, strict=True):
        made = archive(_FOLDER, head, each.storages.found, sums)
        size = sum(segment.length for segment in made)
        data += made
        saved.append(_saved(each, at, size))
        at += size
    values, said = Recipe(source, tuple(data)), Recipe(source, (Literal(metadata(saved)),))
    contents, stored = _contents(written)
    return Composed({DATA: values, METADATA: said}, values, contents, stored, swapped), apart


def _contents(written: Sequence[Written]) -> tuple[Checkpoint, dict[str, Stored]]:
    """What reading the folder must give: each tensor on a storage of its own, of which is said what it holds."""
    stored: dict[str, Stored] = {}
    storages: list[Storage] = []

    def placed(node: Node, each: Written) -> Node:
        if not isinstance(node, Tensor):
            return node
        steps, (key, _, _) = each.value.steps, each.storages.of(node)
        storage = Storage(f"{len(storages)}", each.storages.found[int(key)].nbytes, node.dtype, "cpu", None)
        storages.append(storage)
        stored[storage.key] = replace(each.storages.found[int(key)], key=storage.key)
        return replace(node, path=(*steps, *node.path[len(steps) :]), storage=storage, values=None, chunks=())

    tree = nested([(each.value.steps, mapped(each.node, partial(placed, each=each))) for each in written])
    every = tuple(tensors_in(tree))
    return Checkpoint("", NAME, 0, tree, every, tuple(storages), find_state_dicts(tree)), stored


def _written(value: Value, swapped: bool) -> Written:
    originals = {node.path: node for _, node in walk(value.node) if isinstance(node, Tensor)}
    return Written(value, _plain(value.node), OwnElements(originals, swapped))


def _plain(node: Node) -> Node:
    """The value as it is written: tensors in C order, on the CPU, without gradients."""
    if isinstance(node, Tensor):
        made = replace(node, is_parameter=False, requires_grad=False)
        return replace(torch_tensor(made), stride=contiguous_stride(node.shape), offset=0)
    if isinstance(node, Mapping):
        return replace(node, entries=tuple([(part, _plain(child)) for part, child in node.entries]))
    if isinstance(node, Items):
        return replace(node, items=tuple([_plain(child) for child in node.items]))
    return node


def _saved(each: Written, offset: int, size: int) -> Saved:
    value, node = each.value, each.node
    if isinstance(node, Tensor):
        return Saved(value.key, value.steps, DATA, offset, size, dtype_of(node), node.shape)
    return Saved(value.key, value.steps, DATA, offset, size)


def nested(values: Sequence[tuple[Steps, Node]]) -> Node:
    """The contents as they are put together again: dicts by text, lists by number, None for what a list lost."""
    top: dict[str | int, object] = {}
    for steps, node in values:
        level = top
        for step in steps[:-1]:
            level = level.setdefault(step, {})  # type: ignore[assignment]  # a leaf is no dict: its key would be twice there
        level[steps[-1]] = _Leaf(node)
    return _joined(top)


@noun
class _Leaf:
    node: Node


def _joined(level: object) -> Node:
    if isinstance(level, _Leaf):
        return level.node
    assert isinstance(level, dict)
    if all(isinstance(step, int) for step in level):
        items: list[Node] = [None] * (max(level) + 1)
        for step, below in level.items():
            items[step] = _joined(below)
        return Items("list", tuple(items))
    return Mapping("dict", tuple([(step, _joined(below)) for step, below in level.items()]))
