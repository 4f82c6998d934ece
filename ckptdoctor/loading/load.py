"""``ckptdoctor.load``: the contents of a checkpoint as plain Python, with tensors on the CPU."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any

from ckptdoctor.checkpoint import (
    Checkpoint,
    Cycle,
    Elided,
    KeyPath,
    Mapping,
    Named,
    Node,
    Opaque,
    Part,
    Sequence,
    Source,
    Special,
    Tensor,
)
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.facts.incomplete import require_every_file, require_own_values
from ckptdoctor.formats import opened, read
from ckptdoctor.loading.inert import Inert
from ckptdoctor.loading.storages import StorageReader
from ckptdoctor.loading.tensors import make_tensor


def load(path: str | os.PathLike[str]) -> Any:
    """The contents of the checkpoint at ``path``: dicts, lists and plain values as saved, tensors on the CPU.

    Device tags do not matter, strides and shared storages are kept, and stored records are mapped rather than read.
    Objects other than plain values and tensors come back as ``Inert`` records; no code of theirs runs.
    Raises UnreadableError, NotACheckpointError or DamagedError, with one sentence that says where: also for a folder
    of which a file is missing or damaged. The other files can be loaded by their own names.
    """
    with opened(path) as (source, container):
        checkpoint = read(source, container)
        require_every_file(checkpoint)
        require_own_values(checkpoint)
        return load_contents(checkpoint, source)


def load_contents(checkpoint: Checkpoint, source: Source) -> Any:
    """The contents of a checkpoint that was opened already; ``source`` is its file."""
    return _Builder(StorageReader(checkpoint, source)).build(checkpoint.tree)


class _Builder:
    """Builds Python objects from the tree, top down and without recursion, so that cycles and depth are no trouble."""

    def __init__(self, storages: StorageReader) -> None:
        self._storages = storages
        self._by_path: dict[KeyPath, Any] = {}
        self._todo: list[_Job] = []
        self._tuples: list[tuple[list[Any], _Place, str]] = []

    def build(self, root: Node) -> Any:
        holder: list[Any] = [None]
        self._todo.append(_Job(root, (), _Place(holder, 0)))
        while self._todo:
            self._place(self._todo.pop())
        # tuples and sets are immutable, so they are closed last, innermost first
        for items, place, kind in reversed(self._tuples):
            place.set(_closed(kind, items))
        return holder[0]

    def _place(self, job: _Job) -> None:
        node = job.node
        if isinstance(node, Tensor):
            job.place.set(make_tensor(node, self._storages))
        elif isinstance(node, Mapping):
            self._mapping(node, job)
        elif isinstance(node, Sequence):
            self._sequence(node, job)
        elif isinstance(node, Opaque):
            self._opaque(node, job)
        elif isinstance(node, Cycle):
            job.place.set(self._by_path.get(node.path))
        elif isinstance(node, Named):
            job.place.set(_named(node.name))
        elif isinstance(node, Elided):
            job.place.set(Inert("elided", state={"reason": node.reason}))
        else:
            job.place.set(node)

    def _mapping(self, node: Mapping, job: _Job) -> None:
        made: dict[Any, Any] = OrderedDict() if node.kind == "collections.OrderedDict" else {}
        job.place.set(made)
        self._by_path[job.path] = made
        self._fill(made, node.entries, job.path)
        if node.attributes is not None and isinstance(made, OrderedDict):
            for part, child in node.attributes.entries:
                place = _AttributePlace(made, str(part))
                self._todo.append(_Job(child, (*job.path, Special(f".{part}")), place))

    def _sequence(self, node: Sequence, job: _Job) -> None:
        items: list[Any] = [None] * len(node.items)
        job.place.set(items)
        self._by_path[job.path] = items
        if node.kind != "list":
            self._tuples.append((items, job.place, node.kind))
        self._list(items, node.items, job.path)

    def _opaque(self, node: Opaque, job: _Job) -> None:
        simple = _simple(node)
        if simple is not None:
            job.place.set(simple)
            return
        made = Inert(node.class_name, arguments=[None] * len(node.arguments), items=[None] * len(node.items))
        job.place.set(made)
        self._by_path[job.path] = made
        for index, child in enumerate(node.arguments):
            self._todo.append(_Job(child, (*job.path, Special(f"({index})")), _Place(made.arguments, index)))
        if isinstance(node.state, Mapping):
            # an object's attributes lie directly under its path, so the state dict gets no step of its own
            self._mapping(node.state, _Job(node.state, job.path, _AttributePlace(made, "state")))
            self._by_path[job.path] = made
        else:
            self._todo.append(_Job(node.state, (*job.path, Special(".state")), _AttributePlace(made, "state")))
        self._list(made.items, node.items, job.path)
        self._fill(made.entries, node.entries, job.path)

    def _fill(self, made: dict[Any, Any], entries: tuple[tuple[Part, Node], ...], path: KeyPath) -> None:
        texts = {part for part, _ in entries if isinstance(part, str)}
        for part, child in entries:
            key = _key(part)
            if isinstance(part, Special) and (key in texts or key in made):
                key = part  # a key that is no text, beside another that reads the same
            made[key] = None  # the order of the file
            self._todo.append(_Job(child, (*path, part), _Place(made, key)))

    def _list(self, made: list[Any], items: tuple[Node, ...], path: KeyPath) -> None:
        for index, child in enumerate(items):
            self._todo.append(_Job(child, (*path, index), _Place(made, index)))


class _Place:
    """A slot of a list or dict that waits for its value."""

    __slots__ = ("holder", "slot")

    def __init__(self, holder: Any, slot: Any) -> None:
        self.holder = holder
        self.slot = slot

    def set(self, value: Any) -> None:
        self.holder[self.slot] = value


class _AttributePlace(_Place):
    """An attribute that waits for its value."""

    __slots__ = ()

    def set(self, value: Any) -> None:
        setattr(self.holder, self.slot, value)


class _Job:
    """A node still to be built, and where it goes."""

    __slots__ = ("node", "path", "place")

    def __init__(self, node: Node, path: KeyPath, place: _Place) -> None:
        self.node = node
        self.path = path
        self.place = place


def _key(part: Part) -> Any:
    return part.text if isinstance(part, Special) else part


def _closed(kind: str, items: list[Any]) -> Any:
    """The immutable or hashed kind of sequence, or the list itself where its items cannot be hashed."""
    if kind == "tuple":
        return tuple(items)
    if kind == "torch.Size":
        import torch

        return torch.Size(items)
    if kind in ("set", "frozenset") and all(isinstance(item, (str, bytes, int, float, type(None))) for item in items):
        return set(items) if kind == "set" else frozenset(items)
    return items


def _named(name: str) -> Any:
    """A torch dtype for its name; any other name as an inert record."""
    module, _, last = name.rpartition(".")
    if module == "torch" and last in BY_NAME:
        import torch

        return getattr(torch, last, Inert(name))
    return Inert(name)


def _simple(node: Opaque) -> Any:
    """A torch.device, which is a plain value in all but its class; None for everything else."""
    if node.class_name != "torch.device" or not node.arguments:
        return None
    kind, *index = node.arguments
    if not isinstance(kind, str) or not all(isinstance(number, int) for number in index):
        return None
    import torch

    return torch.device(":".join([kind, *map(str, index)]))
