"""Proves that everything the source holds is in what is wanted, except for what an edit names.

``discrepancy`` goes by the edits as they are written, and by nothing that applies them. It follows every place of the
source through renames, drops and the rest (``claims``), and then walks through the wanted contents next to it:

- Every tensor is there, on the same storage with the same view, dtype, device and flags, or as an edit says; none is
  there that neither the source nor an edit has. Values, kinds of containers, keys and their order are the same.
- A storage that no edit names is the same in the same extent. One that shrank has the bytes that are viewed, and each
  view begins at the byte where it did. One that was made holds the elements that the edit says: which byte of which
  original storage, asked at every range's ends, or computed of the right tensors by the right form (``shown``).
- Ties stay ties and no two tensors are newly tied, unless an edit says so.
- Metadata, notes, format and size are the same except for the keys and edits that name them.

Left to other proofs: which tensors hide in attributes of Parameters, and what nouns do not say (protocol, memo, how a
call is written), is the formats'; what computed numbers come to is that of ``edits.computing``'s and the others' laws
against torch; how ``_metadata`` follows keys is ``edits.renaming``'s, and where new keys are ``edits.tensors``'.
The roles of state dicts are read off the contents, and are compared when the output is read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as Table
from operator import attrgetter
from struct import pack
from typing import Any

from ckptdoctor.account.claims import account_of
from ckptdoctor.account.contents import Account
from ckptdoctor.account.places import Box, Held, Loop, Place, UnaccountedError
from ckptdoctor.account.shown import Store, span, unlike
from ckptdoctor.checkpoint import (
    Checkpoint,
    Cycle,
    Extent,
    KeyPath,
    Mapping,
    Named,
    Node,
    Opaque,
    Part,
    Sequence,
    Special,
    Storage,
    Tensor,
    show_part,
    show_path,
)
from ckptdoctor.checkpoint.tensor import same_facts
from ckptdoctor.edits import Edit
from ckptdoctor.edits.elements import Elements
from ckptdoctor.errors import UnprovenError

# of a tensor, what no edit touches but by saying so; its place, storage, offset, device and parts are told on their own
_FIELDS = ("dtype", "shape", "stride", "requires_grad", "is_parameter", "rebuild", "layout", "subclass", "details")
_fields = attrgetter(*_FIELDS)
_KINDS = (Mapping, Sequence, Opaque)


def require_accounted(
    source: Checkpoint,
    wanted: Checkpoint,
    edits: Iterable[Edit],
    held: Table[str, Elements] | None = None,
    kept: Table[str, tuple[tuple[int, int], ...]] | None = None,
) -> None:
    """Raise UnprovenError where the contents that a repair would write do not follow from the source and the edits."""
    found = discrepancy(source, wanted, edits, held, kept)
    if found is not None:
        raise UnprovenError(
            f"This repair would change more than its edits name: {found}. Nothing was written. This is a bug "
            "in ckptdoctor; please report it."
        )


def discrepancy(
    source: Checkpoint,
    wanted: Checkpoint,
    edits: Iterable[Edit],
    held: Table[str, Elements] | None = None,
    kept: Table[str, tuple[tuple[int, int], ...]] | None = None,
) -> str | None:
    """Return the first thing of ``wanted`` that source and edits do not account for, in words; None for nothing.

    ``held`` are the elements of new storages, by key, in terms of the source's, and ``kept`` the byte ranges (first
    byte, length) that storages shrank to; None: they are not asked for.
    """
    try:
        _Walk(account_of(source, edits), wanted, held, kept).compare()
    except UnaccountedError as found:
        return str(found)
    return None


class _Walk:
    """The wanted contents compared with the account."""

    def __init__(
        self,
        account: Account,
        wanted: Checkpoint,
        held: Table[str, Elements] | None,
        kept: Table[str, tuple[tuple[int, int], ...]] | None,
    ) -> None:
        self.account = account
        self.wanted = wanted
        self.held = held
        self.kept = kept
        self.storages = {each.key: each for each in wanted.storages}
        self.unbound = dict(self.storages)  # those of which no storage of the account was found to be one
        self.shrunk = any(store.kept is not None for store in account.stores.values())
        self.at: dict[int, KeyPath] = {}  # where containers are now

    def compare(self) -> None:
        """Raise UnaccountedError at the first difference."""
        self._around()
        self._tree()
        self._storages()
        self._ranges()
        self._lists()

    def _around(self) -> None:
        account, source, wanted = self.account, self.account.source, self.wanted
        for name, mine, its in (
            ("format", account.format, wanted.format),
            ("size", account.size, wanted.size),
            ("path", source.path, wanted.path),
            ("identity", source.identity, wanted.identity),
        ):
            if mine != its:
                raise UnaccountedError(f"the {name} of the file would be {its} instead of {mine}")
        if account.metadata != wanted.metadata:
            mine_too, its_too = account.metadata or {}, wanted.metadata or {}
            odd = next((key for key in {**mine_too, **its_too} if mine_too.get(key) != its_too.get(key)), "as a whole")
            raise UnaccountedError(f"the metadata would differ: {odd}")
        if wanted.notes != account.notes:
            raise UnaccountedError("the reader's notes would differ")
        self._names()

    def _names(self) -> None:
        """The pickle names what it did before, except for what was named only by things that are gone."""
        account, source, wanted = self.account, self.account.source, self.wanted
        if wanted.globals is source.globals and wanted.asides == source.asides:
            return
        known, named = {each.shown for each in source.globals}, {each.shown for each in wanted.globals}
        new = next(iter(named - known - account.names), None)
        if new is not None or wanted.asides != source.asides:
            raise UnaccountedError(f"the pickle would name {new or 'other things besides the contents'}")
        lost = known - named
        if lost and not lost <= (_names_in(source.tree) | account.names_go) - _names_in(wanted.tree):
            raise UnaccountedError("the pickle would no longer name everything in its contents")

    # ---- the tree

    def _tree(self) -> None:
        tensors: list[Tensor] = []
        stack: list[tuple[Held, Node, KeyPath]] = [(self.account.root.holds, self.wanted.tree, ())]
        while stack:
            mine, its, path = stack.pop()
            if isinstance(mine, Tensor):
                if not isinstance(its, Tensor):
                    raise UnaccountedError(f"at {show_path(path)} there would no longer be a tensor")
                tensors.append(its)
                self._tensor(mine, its, path)
            elif isinstance(mine, Box):
                if type(its) is not type(mine.node):
                    raise UnaccountedError(f"at {show_path(path)} there would be {_called(its)}")
                self.at[id(mine)] = path
                stack.extend(reversed(self._below(mine, its, path)))
            elif isinstance(mine, Loop):
                if not isinstance(its, Cycle) or its.path != self.at.get(id(mine.to)):
                    raise UnaccountedError(f"the reference at {show_path(path)} to an enclosing object would be lost")
            elif not _same_value(mine, its):
                raise UnaccountedError(f"the value at {show_path(path)} would differ")
        listed = self.wanted.tensors
        if len(listed) != len(tensors) or any(one is not other for one, other in zip(tensors, listed, strict=True)):
            raise UnaccountedError("the list of tensors would not match the contents")

    def _below(self, box: Box, its: Node, path: KeyPath) -> list[tuple[Held, Node, KeyPath]]:
        node = box.node
        if isinstance(node, Mapping) and isinstance(its, Mapping):
            if node.kind != its.kind:
                raise UnaccountedError(f"{show_path(path)} would be a {its.kind} instead of a {node.kind}")
            if (box.attributes is None) != (its.attributes is None):
                raise UnaccountedError(f"the attributes of {show_path(path)} would appear or disappear")
            below = self._entries(box.entries, its.entries, path)
            if box.attributes is not None and its.attributes is not None:
                kind = node.attributes.kind if node.attributes is not None else None
                if box.attributes.attributes is not None or its.attributes.kind != kind:
                    raise UnaccountedError(f"the attributes of {show_path(path)} would differ")
                below += self._entries(box.attributes.entries, its.attributes.entries, path, "attribute ")
            return below
        if isinstance(node, Sequence) and isinstance(its, Sequence):
            if (node.kind, len(box.items)) != (its.kind, len(its.items)):
                raise UnaccountedError(f"{show_path(path)} would be a {its.kind} of {len(its.items)}")
            return [
                (each.holds, child, (*path, at))
                for at, (each, child) in enumerate(zip(box.items, its.items, strict=True))
            ]
        assert isinstance(node, Opaque)
        assert isinstance(its, Opaque)
        counts = (node.class_name, len(box.arguments), len(box.items))
        if counts != (its.class_name, len(its.arguments), len(its.items)):
            raise UnaccountedError(f"{show_path(path)} would be a {its.class_name} made differently")
        below = [
            (each.holds, child, (*path, each.step)) for each, child in zip(box.arguments, its.arguments, strict=True)
        ]
        inside = isinstance(box.state.holds, Box) and isinstance(box.state.holds.node, Mapping)
        below.append((box.state.holds, its.state, path if inside else (*path, box.state.step)))
        below += [
            (each.holds, child, (*path, at)) for at, (each, child) in enumerate(zip(box.items, its.items, strict=True))
        ]
        return below + self._entries(box.entries, its.entries, path)

    def _entries(
        self, places: list[Place], entries: tuple[tuple[Part, Node], ...], path: KeyPath, what: str = ""
    ) -> list[tuple[Held, Node, KeyPath]]:
        below: list[tuple[Held, Node, KeyPath]] = []
        for place, (part, child) in zip(places, entries, strict=False):
            step = place.step
            if part != step or type(part) is not type(step):
                where = f'the {what}key "{show_part(part)}" instead of "{show_part(step)}"'
                raise UnaccountedError(f"in {show_path(path)} there would be {where}")
            below.append((place.holds, child, (*path, Special(f".{step}") if what else step)))
        if len(places) != len(entries):
            over = places[len(entries) :] or [Place(part, None) for part, _ in entries[len(places) :]]
            verb = "be lost" if len(places) > len(entries) else "come from nowhere"
            raise UnaccountedError(f'the {what}key "{show_part(over[0].step)}" of {show_path(path)} would {verb}')
        return below

    # ---- tensors

    def _tensor(self, mine: Tensor, its: Tensor, path: KeyPath) -> None:
        if its.path != path:
            raise UnaccountedError(f"the tensor at {show_path(path)} would have the path {show_path(its.path)}")
        usual = not (self.shrunk or self.account.retaggings or mine.parts or its.parts)
        if (
            usual
            and mine.storage is not None
            and (its is mine or (same_facts(its, mine) and its.chunks == mine.chunks))
        ):
            self._bind(mine.storage, its.storage, path)
        else:
            self._view(mine, its, path)

    def _view(self, mine: Tensor, its: Tensor, path: KeyPath) -> None:
        if _fields(mine) != _fields(its):
            both = zip(_FIELDS, _fields(mine), _fields(its), strict=True)
            name, one, other = next(each for each in both if each[1] != each[2])
            told = [getattr(each, "name", each) for each in (one, other)]
            raise UnaccountedError(f"the {name} of {show_path(path)} would be {told[1]} instead of {told[0]}")
        if mine.values is not its.values and (mine.values is None or mine.values != its.values):
            raise UnaccountedError(f"{show_path(path)} would have other values in the pickle")
        if mine.chunks is not its.chunks and mine.chunks != its.chunks:
            raise UnaccountedError(f"{show_path(path)} would consist of other pieces")
        devices = self._devices(mine, its)
        if its.device not in devices:
            raise UnaccountedError(f"{show_path(path)} would be tagged {its.device} instead of {' or '.join(devices)}")
        if mine.storage is None or its.storage is None:
            if mine.storage is not its.storage:
                raise UnaccountedError(f"{show_path(path)} would have its bytes elsewhere")
            offset = mine.offset
        else:
            offset = self._offset(mine, self._bind(mine.storage, its.storage, path), path)
        if its.offset != offset:
            raise UnaccountedError(f"the offset of {show_path(path)} would be {its.offset} instead of {offset}")
        if len(mine.parts) != len(its.parts):
            raise UnaccountedError(f"{show_path(path)} would consist of {len(its.parts)} tensors")
        for one, other in zip(mine.parts, its.parts, strict=True):
            below = (*path, *one.path[len(mine.path) :])
            if other.path != below:
                raise UnaccountedError(f"a part of {show_path(path)} would have the path {show_path(other.path)}")
            self._view(one, other, below)

    def _offset(self, mine: Tensor, store: Store, path: KeyPath) -> int:
        if store.kept is None:
            return mine.offset
        if 0 in mine.shape:
            return 0
        first, last = span(mine)
        place, end = store.place_of(first), store.place_of(last - 1)
        if place < 0 or end - place != last - 1 - first:
            raise UnaccountedError(f"{show_path(path)} would lose bytes of its storage")
        return place * 8 // mine.dtype.bits

    def _devices(self, mine: Tensor, its: Tensor) -> frozenset[str]:
        """Return the tags that it may have: its storage's, if it had the same as its storage, or those of its parts."""
        if not self.account.retaggings:
            return frozenset({mine.device})
        if mine.storage is not None:
            if mine.device != mine.storage.device:
                return frozenset({mine.device})
            store = self.account.store(mine.storage)
            return self.account.devices_of(store, its.storage.key if its.storage is not None else None)
        if mine.parts and its.parts and mine.device == mine.parts[0].device:
            return self._devices(mine.parts[0], its.parts[0])
        return frozenset({mine.device})

    # ---- storages

    def _bind(self, mine: Storage, its: Storage | None, path: KeyPath) -> Store:
        """Return the account's storage that the wanted one is: one to one."""
        store = self.account.store(mine)
        if its is None:
            raise UnaccountedError(f"{show_path(path)} would have no bytes")
        if store.bound == its.key:
            return store
        if store.bound is not None:
            raise UnaccountedError(f"{show_path(path)} would no longer share memory with others")
        store.bound = its.key
        listed = self.unbound.pop(its.key, None)
        if listed is None and its.key in self.storages:
            raise UnaccountedError(f"{show_path(path)} would share memory with others that it did not")
        if listed is None or (listed is not its and listed != its):
            raise UnaccountedError(f"the storage of {show_path(path)} would not be among those of the file")
        if its is not store.noun or store.kept is not None or self.account.retaggings:
            self._storage(store, its, show_path(path))
        return store

    def _storage(self, store: Store, its: Storage, where: str) -> None:
        noun = store.noun
        if its is noun and store.kept is None and not self.account.retaggings:
            return
        original = store.holds is None
        if original and its.key != noun.key:
            raise UnaccountedError(f"{where} would be on storage {its.key} instead of {noun.key}")
        if (its.nbytes, its.dtype) != (store.nbytes, noun.dtype):
            raise UnaccountedError(
                f"the storage of {where} would have {its.nbytes:,} bytes instead of {store.nbytes:,}"
            )
        devices = self.account.devices_of(store, its.key)
        if its.device not in devices:
            raise UnaccountedError(f"the storage of {where} would be tagged {its.device}")
        same = store.nbytes == noun.nbytes
        extent = (
            noun.extent if same or noun.extent is None else Extent(noun.extent.file, noun.extent.offset, store.nbytes)
        )
        if (its.extent, its.crc32, its.compressed) != (extent, noun.crc32 if same else None, noun.compressed):
            raise UnaccountedError(f"the bytes of {where} would be read from elsewhere")
        if store.holds is not None and self.held is not None:
            elements = self.held.get(its.key)
            found = "unknown contents" if elements is None else unlike(store.holds, elements)
            if found is not None:
                raise UnaccountedError(f"the storage of {where} would hold something else: {found}")

    def _storages(self) -> None:
        """Those that no tensor views any more are gone, and those that none ever viewed are as they were."""
        account, listed = self.account, [each.key for each in self.wanted.storages]
        before = [each.key for each in account.source.storages]
        if listed == before and len(listed) == len(self.storages) == len(account.stores) and not self.unbound:
            return  # each is that of another of as many, and in its order
        viewed = {each.key for tensor in _flat(account.source.tensors) if (each := tensor.storage) is not None}
        kept = []
        for key in before:
            bare = key not in viewed and not account.only_viewed and key not in account.gone_storages
            if account.stores[key].bound is not None or bare:
                kept.append(key)
            if bare and key in self.storages:
                self._storage(account.stores[key], self.storages[key], f"storage {key}")
        originals = set(before)
        if kept != [key for key in listed if key in originals]:
            raise UnaccountedError("storages would appear, disappear or move")
        new = [key for key in listed if key not in originals]
        if len(new) != len(set(new)) or not self.unbound.keys().isdisjoint(new):
            raise UnaccountedError("there would be storages that no tensor views")

    def _ranges(self) -> None:
        """The ranges that storages of the source shrank to are those that are viewed; the others are whole, and old."""
        if not (self.held or self.kept or self.shrunk):
            return
        stores = {key: store for key, store in self.account.stores.items() if store.holds is None}
        if self.held is not None and not stores.keys().isdisjoint(self.held):
            raise UnaccountedError("a storage of the source would change")
        if self.kept is None:
            return
        for key in {*self.kept, *[key for key, store in stores.items() if store.kept is not None]} & stores.keys():
            store = stores[key]
            whole = ((0, store.noun.nbytes),)
            if _united(self.kept.get(key, whole)) != _united(whole if store.kept is None else store.kept):
                raise UnaccountedError(f"storage {key} would keep bytes other than those that are viewed")

    def _lists(self) -> None:
        """What is said of state dicts is said of dicts and tensors of the contents."""
        inside = frozenset(map(id, self.wanted.tensors))
        for state_dict in self.wanted.state_dicts:
            if not inside.issuperset(map(id, state_dict.tensors)):
                raise UnaccountedError(f"the state dict {show_path(state_dict.path)} would have additional tensors")


def _flat(tensors: Iterable[Tensor]) -> Iterable[Tensor]:
    for tensor in tensors:
        yield tensor
        if tensor.parts:
            yield from _flat(tensor.parts)


def _united(pieces: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pieces, those that touch made one."""
    found: list[tuple[int, int]] = []
    for start, length in pieces:
        if found and sum(found[-1]) == start:
            start, length = found[-1][0], found.pop()[1] + length
        if length:
            found.append((start, length))
    return found


_SETS = {"set": "builtins.set", "frozenset": "builtins.frozenset"}


def _names_in(tree: Node) -> set[str]:
    """Return what a tree shows that a pickle names."""
    found: set[str] = set()
    stack: list[Node] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Tensor):
            found |= {node.rebuild, node.subclass or node.rebuild}
            stack.extend(node.parts)
        elif isinstance(node, Named):
            found.add(node.name)
        elif isinstance(node, Opaque):
            found.add(node.class_name)
            stack.append(node.state)
            stack.extend([*node.arguments, *node.items, *[child for _, child in node.entries]])
        elif isinstance(node, Sequence):
            found.add(_SETS.get(node.kind, node.kind))
            stack.extend(node.items)
        elif isinstance(node, Mapping):
            found.add(node.kind)
            stack.append(node.attributes)
            stack.extend([child for _, child in node.entries])
    return found


def _same_value(mine: Any, its: Any) -> bool:
    if type(mine) is not type(its):
        return False
    if isinstance(mine, float):  # NaN is itself here, and 0.0 is not -0.0
        return pack("d", mine) == pack("d", its)
    return bool(mine == its)


def _called(node: Node) -> str:
    return f"a {type(node).__name__.lower()}" if isinstance(node, (*_KINDS, Tensor)) else "a plain value"
