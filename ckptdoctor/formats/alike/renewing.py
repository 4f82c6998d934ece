"""Makes the contents of a file out of those of one that is like it in all but places, checksums and numbers."""

from __future__ import annotations

from collections.abc import Sequence as Some
from itertools import repeat
from typing import Any

from ckptdoctor.checkpoint import (
    Checkpoint,
    Extent,
    GlobalName,
    Mapping,
    Node,
    Opaque,
    Sequence,
    StateDict,
    Storage,
    Tensor,
)
from ckptdoctor.checkpoint.blind import blind
from ckptdoctor.noun import maker, noun, replace

_extent, _storage, _tensor = maker(Extent), maker(Storage), maker(Tensor)
_global = maker(GlobalName)
_mapping, _sequence, _opaque, _state_dict = maker(Mapping), maker(Sequence), maker(Opaque), maker(StateDict)


@noun(eq=False)
class Again:
    """What is known of a file that is laid out as one before: its contents; None where other numbers differ."""

    contents: Checkpoint | None


class Pattern:
    """Contents in whose tree ``holes`` are where files that are like each other have numbers of their own.

    Raises ValueError where they cannot be made again: a storage is in another file, or in none.
    """

    def __init__(self, contents: Checkpoint, holes: Some[Any] = ()) -> None:
        self._contents = contents
        self._holes = {id(each): number for number, each in enumerate(holes)}
        self._held = tuple(holes)  # so that nobody else has their ids
        files = {each.extent.file if each.extent is not None else "" for each in contents.storages}
        if files and files != {contents.path}:
            raise ValueError("its bytes are not all in one file")
        self._varying: dict[int, bool] = {}
        self._mark(contents.tree)
        for each in contents.state_dicts:
            if each.metadata is not None:
                self._mark(each.metadata)
        self.offsets = tuple([each.extent.offset for each in contents.storages if each.extent is not None])

    def _mark(self, node: Any) -> bool:
        """Note whether something below a node, or itself, is not the same in all files."""
        known = self._varying.get(id(node))
        if known is None:
            kind = type(node)
            if kind is Tensor:
                known = True
            elif kind in (Mapping, Sequence, Opaque):
                known = True in [self._mark(each) for each in _below(node)]
            else:
                return id(node) in self._holes
            self._varying[id(node)] = known
        return known

    def blind(self, numbers: Some[type] = ()) -> Checkpoint:
        """Return contents of which nobody may look at what differs; ``numbers`` are the classes of those."""
        checksums = [None if each.crc32 is None else blind(int) for each in self._contents.storages]
        made = self.renewed(blind(str), checksums, [blind(kind) for kind in numbers], blind(str))
        return replace(made, identity=blind(str), container=blind(str), bytes_read=blind(int))

    def renewed(
        self, path: str, checksums: Some[int | None] | None = None, numbers: Some[Any] = (), member: str = ""
    ) -> Checkpoint:
        """Return the contents of the file at ``path``, whose pickle is in ``member``.

        The checksums are those of its storages, in their order.
        """
        old = self._contents
        storages = [
            _storage(
                each.key, each.nbytes, each.dtype, each.device,
                _extent(path, each.extent.offset, each.extent.length),  # type: ignore[union-attr]
                checksum, each.compressed,
            )
            for each, checksum in zip(old.storages, checksums or repeat(None), strict=checksums is not None)
        ]  # fmt: skip
        made = _Making(self, {id(each): new for each, new in zip(old.storages, storages, strict=True)}, numbers)
        tree = made.node(old.tree)
        return replace(
            old,
            path=path,
            tree=tree,
            tensors=tuple([made.tensor(each) for each in old.tensors]),
            storages=tuple(storages),
            state_dicts=tuple([made.state_dict(each) for each in old.state_dicts]),
            globals=tuple([_global(each.module, each.name, member, each.offset) for each in old.globals]),
        )


class _Making:
    """One file in the making."""

    def __init__(self, pattern: Pattern, storages: dict[int, Storage], numbers: Some[Any]) -> None:
        self._holes, self._varying = pattern._holes, pattern._varying
        self._storages = storages
        self._numbers = numbers
        self._made: dict[int, Any] = {}

    def node(self, node: Any) -> Any:
        """Return what is in the place of a node."""
        at = id(node)
        if not self._varying.get(at):
            number = self._holes.get(at)
            return node if number is None else self._numbers[number]
        kind = type(node)
        if kind is Tensor:
            return self.tensor(node)
        found = self._made.get(at)
        if found is None:
            of = self.node
            if kind is Mapping:
                entries = tuple([(part, of(child)) for part, child in node.entries])
                found = _mapping(node.kind, entries, of(node.attributes))
            elif kind is Sequence:
                found = _sequence(node.kind, tuple(map(of, node.items)))
            else:
                entries = tuple([(part, of(child)) for part, child in node.entries])
                arguments, items = tuple(map(of, node.arguments)), tuple(map(of, node.items))
                found = _opaque(node.class_name, arguments, of(node.state), items, entries)
            self._made[at] = found
        return found

    def tensor(self, old: Tensor) -> Tensor:
        """Return what is in the place of a tensor."""
        found: Tensor | None = self._made.get(id(old))
        if found is None:
            storage = None if old.storage is None else self._storages[id(old.storage)]
            parts = tuple(map(self.tensor, old.parts)) if old.parts else ()
            chunks = tuple([(at, self.tensor(each)) for at, each in old.chunks]) if old.chunks else ()
            found = self._made[id(old)] = _tensor(
                old.path, old.dtype, old.shape, old.stride, storage, old.offset, old.device, old.requires_grad,
                old.is_parameter, old.rebuild, old.layout, old.subclass, parts, old.details, old.values, chunks,
            )  # fmt: skip
        return found

    def state_dict(self, old: StateDict) -> StateDict:
        """Return what is in the place of a state dict."""
        metadata = None if old.metadata is None else self.node(old.metadata)
        return _state_dict(old.path, old.role, tuple(map(self.tensor, old.tensors)), old.others, metadata)


def _below(node: Mapping | Sequence | Opaque) -> list[Node]:
    if isinstance(node, Mapping):
        return [*[child for _, child in node.entries], node.attributes]
    if isinstance(node, Sequence):
        return [*node.items]
    return [*node.arguments, node.state, *node.items, *[child for _, child in node.entries]]
