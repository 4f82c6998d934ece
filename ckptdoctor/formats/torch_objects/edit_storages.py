"""Edits of storages: retag, compact, make anew; and the plan for every storage of the output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from ckptdoctor.checkpoint import DType, KeyPath, Storage, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits import Cast, Clone, Compact, MakeContiguous, Retag, elements
from ckptdoctor.edits.casts import converted
from ckptdoctor.edits.tensors import storage_name
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.elements import chunks
from ckptdoctor.formats.torch_objects.arguments import device_name
from ckptdoctor.formats.torch_objects.graph_edit import GraphEdit
from ckptdoctor.formats.torch_objects.new_nodes import NewNodes
from ckptdoctor.formats.torch_objects.plans import Numbering, Piece, StoragePlan, narrowed, whole
from ckptdoctor.formats.torch_objects.slots import Slot
from ckptdoctor.formats.torch_objects.states import is_changed
from ckptdoctor.formats.torch_objects.storages import claim_of
from ckptdoctor.formats.torch_objects.sweep import storage_references
from ckptdoctor.formats.torch_objects.texts import NewText, new_text, replace_texts
from ckptdoctor.formats.torch_objects.values import CALLS, bare, call, full_name, items
from ckptdoctor.formats.torch_objects.views_in_graph import (
    PARAMETER_MAKERS,
    TYPE_MAKERS,
    Users,
    View,
    tuple_of,
    users_of_storages,
    view_in,
)
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, PersistentId, Text, Tuple, Value

_CPU = "cpu"

# places in ('storage', class, key, location, numel[, view])
KIND, KEY, _LOCATION, NUMEL = 1, 2, 3, 4


class StorageEdits:
    """The storages of one file while it is edited. ``plans`` holds, by key, those that are not as they were."""

    def __init__(self, graph: GraphEdit, storages: Iterable[Storage]) -> None:
        self._graph = graph
        self._old = {storage.key: storage for storage in storages}
        self._plans: dict[str, StoragePlan] = {}
        self._elements: dict[str, elements.Elements] = {}  # of made storages, in terms of the original ones
        self._names: dict[str, str] = {}  # what a made storage holds → its key
        self._made = 0

    def _plan(self, key: str) -> StoragePlan:
        plan = self._plans.get(key)
        return whole(self._old[key]) if plan is None else plan

    def _keys_in_use(self) -> list[str]:
        claims = map(claim_of, self._graph.storage_references())
        return list(dict.fromkeys(claim.key for claim in claims if claim is not None))

    # ---- retag

    def retag(self, edit: Retag) -> None:
        """Another device tag in persistent ids: in that slot only, whatever else shares the text."""
        shared: Text | None = None
        slots: list[Slot] = []
        for reference in self._graph.storage_references():
            claim = claim_of(reference)
            if claim is None:
                continue
            if claim.device == edit.to and shared is None:
                location = bare((items(reference.id) or [])[_LOCATION])
                shared = location if isinstance(location, Text) else None
            if _is_meant(edit, claim.device, claim.key):
                slots.append(Slot(self.own_id(reference), _LOCATION))
        if slots:
            self._retag_wrappers(edit)
            self._put_location(slots, edit.to, shared)

    def _put_location(self, slots: list[Slot], tag: str, shared: Text | None) -> None:
        """One text for all, as torch writes ``cpu``."""
        if shared is None:
            old = bare(slots[0].value)
            shared = new_text(self._graph.pickle, tag, old if isinstance(old, Text) else None)
            shared.memo = self._graph.new_memo()
        for slot in slots:
            slot.put(shared)
        self._graph.rebuilt()

    def _retag_wrappers(self, edit: Retag) -> None:
        """The device of a wrapper subclass (DTensor) follows the first tensor that it wraps."""
        for node in self._graph.nodes():
            if type(node) is not Made or node.op not in CALLS:
                continue
            callee, arguments, _ = call(node)
            if full_name(callee) not in TYPE_MAKERS or len(arguments) != 4:
                continue
            inner = items(arguments[2])
            if full_name(arguments[0]) != "torch._utils._rebuild_wrapper_subclass" or inner is None or len(inner) != 8:
                continue
            wrapped = next((each for each in storage_references(arguments[3])), None)
            claim = claim_of(wrapped) if wrapped is not None else None
            device = bare(inner[6])
            if claim is None or not isinstance(device, Made) or device_name(device) != claim.device:
                continue
            if _is_meant(edit, claim.device, claim.key):
                inner[6] = _device(self._graph, device, edit.to)

    def own_id(self, reference: PersistentId) -> list[Value]:
        """The parts of a persistent id, which nothing else shares."""
        identity = bare(reference.id)
        assert isinstance(identity, Tuple)
        if self._graph.references(identity) > 1:
            identity = reference.id = Tuple(identity.op, list(identity.items))
        return identity.items

    # ---- storages out of what stands in the pickle

    def hold(self, new: NewNodes, data: bytes, element: DType) -> PersistentId:
        """A reference to a new storage with these elements."""
        self._made += 1
        key = f"array {self._made}"  # never a key of torch, so it is free; it gets a number in the end
        self._plans[key] = StoragePlan(key, len(data), None, Storage(key, len(data), element, _CPU, None), data=data)
        typed = element.storage_class is not None
        kind = new.named(f"torch.{element.storage_class}" if typed else "torch.storage.UntypedStorage")
        count = len(data) * 8 // element.bits if typed else len(data)
        storage, cpu = new.text("storage", shared=True), new.text(_CPU, shared=True)
        return PersistentId(op.BINPERSID, new.tuple([storage, kind, new.text(key), cpu, count]))

    # ---- compact

    def compact(self, edit: Compact) -> None:
        """Storages shrink to what is viewed of them; tensors that share elements go on sharing them."""
        users = users_of_storages(self._graph.nodes())
        for key in edit.storages:
            used = users.get(key)
            if used is None or key not in self._old:
                raise RefusedError(f"No tensor views storage {key}, so there is nothing to shrink it to.")
            if not used.bare:
                self._compact(key, used)
        self._graph.rebuilt()

    def _compact(self, key: str, used: Users) -> None:
        plan = self._plan(key)
        kept = _united(view.span for view in used.views)
        if kept and kept[-1][0] + kept[-1][1] > plan.nbytes:
            raise RefusedError(f"A tensor reaches past the end of storage {key}, which so cannot be shrunk.")
        nbytes = sum(length for _, length in kept)
        if nbytes == plan.nbytes:
            return
        if plan.pieces is None or any(len(items(each.id) or ()) > 5 and _is_view(each) for each in used.references):
            raise RefusedError(f"Storage {key} is a view of another one, and cannot be shrunk alone.")
        for view in used.views:
            start = _moved(view.span[0], kept) if view.reach else 0
            offset, rest = divmod(start, view.itemsize)
            if rest:
                raise RefusedError(f"Storage {key} holds elements of several sizes, and cannot be shrunk.")
            view.arguments[1] = offset
        for reference in used.references:
            claim = claim_of(reference)
            assert claim is not None
            self.own_id(reference)[NUMEL] = nbytes // claim.itemsize
        self._plans[key] = StoragePlan(key, nbytes, narrowed(plan.pieces, kept), plan.old)

    # ---- make contiguous

    def make_contiguous(self, edit: MakeContiguous) -> None:
        """Tensors get C-contiguous storages of their own; equal views of one storage go on sharing theirs."""
        for path in dict.fromkeys(edit.paths):
            view = self.view(self._graph.slot(path), path, "made contiguous")
            self.put(view, self.elements_of(view), self.original(view))
        self._graph.rebuilt()

    def clone(self, edit: Clone) -> None:
        """Tensors get C-contiguous storages that no other tensor views."""
        for path in dict.fromkeys(edit.paths):
            view = self.view(self._graph.slot(path), path, "cloned")
            self.put(view, self.elements_of(view), self.original(view), show_path(path))
        self._graph.rebuilt()

    def view(self, slot: Slot, path: KeyPath, verb: str) -> View:
        """The view in ``slot``, whose arguments belong to it alone. Raises RefusedError for other things."""
        while True:
            self._graph.own(slot)
            node = bare(slot.value)
            if not isinstance(node, Made) or node.op not in CALLS or len(node.items) < 2 or is_changed(node):
                break
            self._graph.own(Slot(node.items, 1))
            callee, arguments, _ = call(node)
            name = full_name(callee)
            if name in PARAMETER_MAKERS and arguments:
                slot = Slot(arguments, 0)
                continue
            if name in TYPE_MAKERS and len(arguments) == 4:
                self._graph.own(Slot(arguments, 2))
                name, arguments = full_name(arguments[0]), items(arguments[2]) or []
            view = view_in(name, arguments)
            if (
                view is None
                or view.claim.view is not None
                or view.reach * view.itemsize > self._plan(view.claim.key).nbytes
            ):
                break
            return view
        raise RefusedError(f"{show_path(path)} is not a plain tensor, and cannot be {verb}.")

    def elements_of(self, view: View) -> elements.View:
        """What the view shows, in terms of its storage as the edits before left it."""
        start = view.offset * view.itemsize
        return elements.View(view.claim.key, start, view.itemsize, view.shape, view.stride)

    def put(self, view: View, made: elements.Elements, origin: elements.Elements, owner: str = "") -> None:
        """Let a view be all of a storage with these elements, made where there is none yet; an ``owner`` has its own.

        ``made`` tells them in terms of the storages as the edits before left them, ``origin`` in the original's.
        """
        key = self._stored(made, origin, view.dtype, view.claim.device, owner)
        identity = list(items(view.reference.id) or [])
        identity[KEY] = new_text(self._graph.pickle, key)
        identity[NUMEL] = self._plan(key).nbytes // view.claim.itemsize
        view.arguments[0] = PersistentId(view.reference.op, Tuple(op.TUPLE, identity))
        view.arguments[1] = 0
        view.arguments[2] = tuple_of(made.shape)
        view.arguments[3] = tuple_of(contiguous_stride(made.shape))

    def reference(
        self,
        new: NewNodes,
        made: elements.Elements,
        element: DType,
        device: str,
        origin: elements.Elements | None = None,
        like: PersistentId | None = None,
    ) -> PersistentId:
        """A reference to a storage with these elements, made where there is none yet. ``origin``: see ``put``.

        ``like`` is one of the same file: in torch's first format they have a part more, which says what is a view.
        """
        key = self._stored(made, made if origin is None else origin, element, device)
        kind = element.storage_class or "UntypedStorage"
        count = self._plan(key).nbytes // (max(1, element.bits // 8) if element.storage_class else 1)
        storage, place = new.text("storage", shared=True), new.text(device, shared=True)
        named = new.named(f"torch.{kind}" if element.storage_class else f"torch.storage.{kind}")
        parts: list[Value] = [storage, named, new.text(key), place, count]
        usual = len(parts)
        parts += (items(like.id) or [])[usual:] if like is not None else []
        return PersistentId(op.BINPERSID, new.tuple(parts))

    def _stored(
        self, made: elements.Elements, origin: elements.Elements, element: DType, device: str, owner: str = ""
    ) -> str:
        """The key of the storage with these elements: for one ``owner`` the same for the same views of storages."""
        sizes = [self._plan(each.source).nbytes for each in elements.views(made) if each.held is None]
        name = storage_name(made, element, sizes) + owner
        if name not in self._names:
            self._made += 1
            first = next((each.source for each in elements.views(origin) if each.held is None), None)
            # never a key of torch, so it is free; it gets a number in the end
            key = self._names[name] = f"{'made' if first is None else first} {self._made}"
            nbytes = elements.nbytes(made)
            old = Storage(key, nbytes, element, device, None) if first is None else self._old[first]
            self._plans[key] = _plan(key, nbytes, origin, old)
            self._elements[key] = origin
        return self._names[name]

    def original(self, view: View) -> elements.Elements:
        """What the view shows, in terms of the storages of the original."""
        return self._origin_of(self.elements_of(view))

    def exchange(self, key: str, edit: Cast, element: DType, device: str) -> tuple[str, int]:
        """Key and bytes of a storage that has every element of the one called ``key`` cast."""
        plan, width = self._plan(key), element.bits // 8
        every = elements.View(key, 0, width, (plan.nbytes // width,), (1,))
        made, origin = (converted(each, element, edit) for each in (every, self._origin_of(every)))
        new = self._stored(made, origin, BY_NAME[edit.dtype], device)
        return new, self._plan(new).nbytes

    def nbytes(self, key: str) -> int:
        """Bytes of the storage as the edits before left it."""
        return self._plan(key).nbytes

    def _origin_of(self, shown: elements.View) -> elements.Elements:
        """The same in terms of the storages of the original."""
        plan = self._plan(shown.source)
        if plan.data is not None:
            return replace(shown, held=plan.data)
        if shown.source in self._elements:
            if shown.start or not shown.contiguous or elements.nbytes(shown) != plan.nbytes:
                raise RefusedError(f"Storage {shown.source} was made anew before; apply this edit on its own.")
            return elements.reshaped(self._elements[shown.source], shown.shape)
        assert plan.pieces is not None
        length = elements.nbytes(shown) if shown.contiguous else shown.width
        ranges = narrowed(plan.pieces, ((shown.start, length),))
        shown = replace(shown, source=plan.old.key, start=ranges[0][0] if ranges else 0)
        return elements.of_ranges(shown, ranges) if len(ranges) > 1 else shown

    # ---- the result

    def finish(self, renumber: Numbering) -> tuple[StoragePlan, ...]:
        """The plan for every storage of the output, with its key."""
        keys = self._keys_in_use()
        names = {key: key for key in keys}
        if renumber is Numbering.ALWAYS or set(keys) != set(self._old):
            numbered = renumber is not Numbering.KEPT
            names = {key: str(number) for number, key in enumerate(keys)} if numbered else _named(keys, self._old)
            self._rename(names)
        plans = [self._plan(key) for key in keys]
        return tuple([replace(plan, key=names[key]) for key, plan in zip(keys, plans, strict=True)])

    def _rename(self, names: dict[str, str]) -> None:
        """The new keys in the persistent ids; references to one storage share the text of its key."""
        changes: list[NewText] = []
        for reference in self._graph.storage_references():
            claim = claim_of(reference)
            if claim is not None and names[claim.key] != claim.key:
                changes.append(NewText(Slot(self.own_id(reference), KEY), names[claim.key]))
        replace_texts(self._graph, changes)


def _is_meant(edit: Retag, device: str, key: str) -> bool:
    named = device != edit.to if edit.devices is None else device in edit.devices
    return named and (edit.storages is None or key in edit.storages)


def _device(graph: GraphEdit, old: Made, tag: str) -> Made:
    """``torch.device`` for a tag such as ``cuda:1``, made like the old one."""
    kind, _, number = tag.partition(":")
    given: list[Value] = [new_text(graph.pickle, kind)]
    if number.isdigit():
        given.append(int(number))
    return Made(op.REDUCE, [old.items[0], Tuple(op.TUPLE1, given)])


def _united(spans: Iterable[tuple[int, int]]) -> tuple[Piece, ...]:
    """Byte spans in order, those that touch or overlap made one; as (start, length)."""
    pieces: list[list[int]] = []
    for start, stop in sorted(span for span in spans if span[0] < span[1]):
        if pieces and start <= pieces[-1][1]:
            pieces[-1][1] = max(pieces[-1][1], stop)
        else:
            pieces.append([start, stop])
    return tuple([(start, stop - start) for start, stop in pieces])


def _moved(byte: int, kept: Sequence[Piece]) -> int:
    """Where a byte lies once only the kept ranges are left."""
    passed = 0
    for start, length in kept:
        if start <= byte < start + length:
            return passed + byte - start
        passed += length
    return passed


def _is_view(reference: PersistentId) -> bool:
    claim = claim_of(reference)
    return claim is not None and claim.view is not None


def _plan(key: str, nbytes: int, origin: elements.Elements, old: Storage) -> StoragePlan:
    """Ranges of one storage where the elements are such, or what makes them."""
    parts = origin.parts if isinstance(origin, elements.Joined) and prod(origin.shape[: origin.dim]) == 1 else (origin,)
    ranges = [
        (part.start, elements.nbytes(part))
        for part in parts
        if isinstance(part, elements.View) and part.contiguous and part.held is None and part.source == old.key
    ]
    if len(ranges) == len(parts) or not nbytes:
        return StoragePlan(key, nbytes, tuple([each for each in ranges if each[1]]), old)
    sources = tuple(dict.fromkeys(each.source for each in elements.views(origin) if each.held is None))
    width = nbytes // prod(origin.shape)
    return StoragePlan(key, nbytes, None, old, partial(chunks, origin), sources=sources, itemsize=width)


def _named(keys: list[str], old: dict[str, Storage]) -> dict[str, str]:
    """Names for new storages that no old one has; the old ones keep theirs."""
    numbers = [int(key) for key in old if key.isascii() and key.isdigit()]
    free = max(numbers, default=-1) + 1
    names = {}
    for key in keys:
        names[key] = key
        if key not in old:
            names[key], free = str(free), free + 1
    return names
