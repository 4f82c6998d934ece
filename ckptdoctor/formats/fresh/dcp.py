"""Lays out folders of torch.distributed.checkpoint: one ``.distcp`` file, and ``.metadata``, which says what is where.

Each value is an archive of its own in the file, as ``torch.save`` writes it; tensors hold just their own elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ckptdoctor.checkpoint import Checkpoint, Cycle, KeyPath, Mapping, Node, Part, Storage, Tensor, show_path
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.changed_trees import mapped, tensors_in
from ckptdoctor.checkpoint.keypath import key_of
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits.applied.wanted import Stored, Wanted
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.fresh.dcp_metadata import Saved, Steps, metadata
from ckptdoctor.formats.fresh.pickling import dtype_of, pickled
from ckptdoctor.formats.fresh.strided import length, segments
from ckptdoctor.formats.fresh.torch_zip import archive, torch_tensor
from ckptdoctor.formats.suffixes import DISTRIBUTED
from ckptdoctor.noun import field, noun, replace
from ckptdoctor.writing.checksums import checksums
from ckptdoctor.writing.recipe import Copy, Literal, Recipe, Segment

DATA, METADATA = "__0_0.distcp", ".metadata"

_FOLDER = "archive"  # what torch.save calls it where it writes into no file


def arranged(apart: Flat, original: Checkpoint, file: str) -> Wanted:
    """Return the values as a folder holds them.

    Each tensor is on a storage of its own, in dicts by text and lists by number.

    Values come from files of the byte order of ``original``.
    """
    stored: dict[str, Stored] = {}
    storages: list[Storage] = []

    def placed(steps: Steps, node: Tensor | Cycle) -> Node:
        if not isinstance(node, Tensor):
            return node
        data = segments(node, original.big_endian)
        storage = Storage(f"{len(storages)}", length(node), node.dtype, "cpu", None)
        storages.append(storage)
        stored[storage.key] = Stored(storage.nbytes, data, _known(node, data), node)
        path = (*steps, *node.path[len(steps) :])
        return replace(_plain(node), path=path, storage=storage, values=None, chunks=())

    tree = nested([(each.steps, mapped(each.node, partial(placed, each.steps))) for each in apart.values])
    every = tuple(tensors_in(tree))
    contents = Checkpoint("", DISTRIBUTED, 0, tree, every, tuple(storages), find_state_dicts(tree))
    return Wanted(original, contents, stored=stored, file=file)


def _plain(tensor: Tensor) -> Tensor:
    """Return the tensor as it is written: in C order, on the CPU, without gradients."""
    made = replace(tensor, is_parameter=False, requires_grad=False)
    return replace(torch_tensor(made), stride=contiguous_stride(tensor.shape), offset=0)


def _known(tensor: Tensor, data: Sequence[Segment]) -> int | None:
    """Return the checksum of the elements where it is that of the whole storage."""
    storage = tensor.storage
    if storage is None or storage.extent is None or storage.compressed or len(data) != 1:
        return None
    (only,) = data
    whole = isinstance(only, Copy) and (only.offset, only.length) == (storage.extent.offset, storage.extent.length)
    return storage.crc32 if whole else None


def write(wanted: Wanted) -> Recipe:
    """Return how to write the files of the folder. Values without a known checksum are read for theirs."""
    values = flat(wanted.contents.tree).values
    keys = [[each.storage.key for each in tensors_in(value.node) if each.storage is not None] for value in values]
    named = [{key: str(number) for number, key in enumerate(own)} for own in keys]
    heads = [pickled(value.node, names) for value, names in zip(values, named, strict=True)]
    unknown = [stored.data for own in keys for key in own if (stored := wanted.stored[key]).crc is None]
    sums = iter(checksums(unknown))
    data: list[Segment] = []
    saved: list[Saved] = []
    at = 0
    for value, names, head in zip(values, named, heads, strict=True):
        made = archive(_FOLDER, head, {name: wanted.stored[key] for key, name in names.items()}, sums)
        size = sum(segment.length for segment in made)
        data += made
        saved.append(_saved(value, at, size))
        at += size
    said = Recipe(wanted.file, (Literal(metadata(saved)),), METADATA)
    return Recipe(wanted.file, tuple(data), DATA, (said,))


def _saved(value: Value, offset: int, size: int) -> Saved:
    node = value.node
    if isinstance(node, Tensor):
        return Saved(value.key, value.steps, DATA, offset, size, dtype_of(node), node.shape)
    return Saved(value.key, value.steps, DATA, offset, size)


def nested(values: Sequence[tuple[Steps, Node]]) -> Node:
    """Return the contents as they are put together again: dicts by text, lists by number, None for what a list lost."""
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


# ---- nested contents under flat keys, as ``flatten_state_dict`` of torch.distributed.checkpoint takes them apart
#
# Dicts are taken apart, and lists where there are tensors or dicts in them; everything else is one value, and so is an
# empty dict, which torch would lose. The keys of dicts become text, as torch makes them.


_DEEPEST = 60


@noun
class Value:
    """What is saved under one flat key: a tensor, or any other value. ``steps`` lead to it in the nested contents."""

    key: str
    steps: Steps
    node: Node


@noun(frozen=False)
class Flat:
    """All values of some contents. ``renamed`` are places of keys that were not strings."""

    values: list[Value] = field(default_factory=list)
    renamed: list[KeyPath] = field(default_factory=list)


def flat(tree: Node, root: KeyPath = ()) -> Flat:
    """Return the contents taken apart.

    Raises RefusedError where two values would get one key, and for contents that are not a dict.
    """
    if not isinstance(tree, Mapping):
        raise RefusedError(f"{show_path(root)} is not a dict: a distributed checkpoint holds values by name.")
    found = Flat()
    seen: set[str] = set()
    for value in _values(tree, (), root, found):
        if value.key in seen:
            raise RefusedError(
                f'Two values would be called "{value.key}" in a distributed checkpoint; rename one first.'
            )
        seen.add(value.key)
        found.values.append(value)
    if not found.values:
        raise RefusedError(f"{show_path(root)} has nothing that a distributed checkpoint can hold.")
    return found


def _values(node: Node, steps: Steps, path: KeyPath, found: Flat) -> Iterator[Value]:
    if len(steps) > _DEEPEST:
        raise RefusedError(f"{show_path(path[:8])} is nested more than {_DEEPEST} levels deep.")
    if isinstance(node, Mapping) and (node.entries or not steps):
        for part, child in node.entries:
            yield from _values(child, (*steps, _text(part, (*path, part), found)), (*path, part), found)
    elif isinstance(node, Items) and node.kind == "list" and not is_leaf(node):
        for index, child in enumerate(node.items):
            yield from _values(child, (*steps, index), (*path, index), found)
    else:
        yield Value(".".join(map(str, steps)), steps, node)


def _text(part: Part, path: KeyPath, found: Flat) -> str:
    if not isinstance(part, str):
        found.renamed.append(path)
    return str(key_of(part))


def is_leaf(node: Items) -> bool:
    """Return whether a list is one value: there is neither a tensor nor a dict in it, however deep in further lists."""
    stack: list[Node] = list(node.items)
    while stack:
        each = stack.pop()
        if isinstance(each, (Tensor, Mapping)):
            return False
        if isinstance(each, Items) and each.kind == "list":
            stack += each.items
    return True
