"""The storages of one file are changed: their tags, what they shrink to, new ones, and who views them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from math import prod

from ckptdoctor.checkpoint import DType, KeyPath, Storage, Tensor, show_path
from ckptdoctor.edits import elements
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.elements import chunks
from ckptdoctor.formats.torch.patch.graph_edit import GraphEdit
from ckptdoctor.formats.torch.patch.new_nodes import NewNodes, NewText, new_text, replace_texts
from ckptdoctor.formats.torch.patch.storage_plans import Edited, Numbering, Piece, StoragePlan, narrowed, whole
from ckptdoctor.formats.torch.read.slots import Slot
from ckptdoctor.formats.torch.read.storages import claim_of
from ckptdoctor.formats.torch.read.tensor_state import is_changed
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, device_name, full_name, items
from ckptdoctor.formats.torch.read.views import (
    PARAMETER_MAKERS,
    TYPE_MAKERS,
    Users,
    View,
    tuple_of,
    users_of_storages,
    view_in,
)
from ckptdoctor.noun import replace
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, PersistentId, String, Tuple, Value, storage_references

_CPU = "cpu"

# places in ('storage', class, key, location, numel[, view])
_KIND, _KEY, _LOCATION, _NUMEL = 1, 2, 3, 4

_V3_DTYPE = 6  # where the arguments of _rebuild_tensor_v3 have the dtype


class NewStorages:
    """``plan`` tells of each storage what it is made of; a new one has the key that it has in the wanted contents."""

    def __init__(self, graph: GraphEdit, storages: Iterable[Storage], wanted: Wanted) -> None:
        self._graph = graph
        self._old = {storage.key: storage for storage in storages}
        self._wanted = wanted
        self._plans: dict[str, StoragePlan] = {}
        self._texts: dict[str, String] = {}  # the key of a new storage, which all references to it share
        self._held = 0

    @cached_property
    def _goal(self) -> dict[str, Storage]:
        return {storage.key: storage for storage in self._wanted.contents.storages}

    def plan(self, key: str) -> StoragePlan:
        """Return what the storage is made of."""
        if key in self._old and key not in self._plans:
            return whole(self._old[key])
        if key not in self._plans:
            self._plans[key] = _made(self._goal[key], self._wanted.remade[key], self._old)
        return self._plans[key]

    # ---- device tags

    def retag(self) -> None:
        """Change the device tag in the persistent ids of storages: in that slot only, whoever shares it."""
        if self._wanted.contents.storages is self._wanted.original.storages:
            return  # as of nearly every repair
        tags = {
            key: self._goal[key].device
            for key, old in self._old.items()
            if key in self._goal and self._goal[key].device != old.device
        }
        if not tags:
            return
        shared: dict[str, String] = {}
        slots: dict[str, list[Slot]] = {}
        for reference in self._graph.storage_references():
            claim = claim_of(reference)
            if claim is None:
                continue
            location = bare((items(reference.id) or [])[_LOCATION])
            if isinstance(location, String):
                shared.setdefault(claim.device, location)
            tag = tags.get(claim.key, claim.device)
            if tag != claim.device:
                slots.setdefault(tag, []).append(Slot(self._own_id(reference), _LOCATION))
        self._retag_wrappers(tags)
        for tag, places in slots.items():
            self._put_location(places, tag, shared.get(tag))

    def _put_location(self, slots: list[Slot], tag: str, shared: String | None) -> None:
        """Put in one text for all, as torch writes ``cpu``."""
        if shared is None:
            old = bare(slots[0].value)
            shared = new_text(self._graph.pickle, tag, old if isinstance(old, String) else None)
            shared.memo = self._graph.new_memo()
        for slot in slots:
            slot.put(shared)
        self._graph.rebuilt()

    def _retag_wrappers(self, tags: dict[str, str]) -> None:
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
            if tags.get(claim.key, claim.device) != claim.device:
                inner[6] = _device(self._graph, device, tags[claim.key])

    def _own_id(self, reference: PersistentId) -> list[Value]:
        """Return the parts of a persistent id, which nothing else shares."""
        identity = bare(reference.id)
        assert isinstance(identity, Tuple)
        if self._graph.references(identity) > 1:
            identity = reference.id = Tuple(identity.op, list(identity.items))
        return identity.items

    # ---- tensors

    def view(self, slot: Slot, path: KeyPath, verb: str) -> View:
        """Return the view in ``slot``, whose arguments belong to it alone. Raises RefusedError for other things."""
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
            if view is None or view.claim.view is not None:
                break
            if view.reach * view.itemsize > self.plan(view.claim.key).nbytes:
                break
            return view
        raise RefusedError(f"{show_path(path)} is not a plain tensor, so it cannot be {verb}.")

    def is_another(self, before: Tensor, after: Tensor) -> bool:
        """Return whether a tensor shows other elements than before, or in another form.

        What a storage shrinks to does not count.
        """
        if after.storage is None:
            return False
        if before.storage is None:  # an array, whose elements get a storage when it is moved
            holds = self._wanted.remade.get(after.storage.key)
            moved = isinstance(holds, elements.View) and holds.held is not None and holds.held is before.values
            return not moved or (after.shape, after.stride) != (before.shape, before.stride)
        shrunk = before.storage.key == after.storage.key
        mine, its = (each.form[shrunk:] for each in (before, after))
        return not shrunk or mine != its

    def show(self, view: View, tensor: Tensor, new: NewNodes) -> None:
        """Let a view be what the tensor is: of which storage, from where, in which form."""
        assert tensor.storage is not None
        if tensor.storage.key != view.claim.key:
            parts = list(items(view.reference.id) or [])
            self._refer(parts, view, tensor, new)
            view.arguments[0] = PersistentId(view.reference.op, Tuple(op.TUPLE, parts))
            if tensor.offset != view.offset:
                view.arguments[1] = tensor.offset
        if tensor.shape != view.shape:
            view.arguments[2] = tuple_of(tensor.shape)
        if tensor.stride != view.stride:
            view.arguments[3] = tuple_of(tensor.stride)
        if tensor.dtype != view.dtype and view.claim.dtype is None and len(view.arguments) > _V3_DTYPE:
            view.arguments[_V3_DTYPE] = new.named(f"torch.{tensor.dtype.name}")

    def _refer(self, parts: list[Value], view: View, tensor: Tensor, new: NewNodes) -> None:
        storage, typed = tensor.storage, view.claim.dtype is not None
        assert storage is not None
        if typed and tensor.dtype.storage_class is None:
            raise RefusedError(f"{show_path(tensor.path)} cannot become {tensor.dtype.name} in a storage of its kind.")
        if typed and tensor.dtype != view.claim.dtype:
            parts[_KIND] = new.named(f"torch.{tensor.dtype.storage_class}")
        if storage.device != view.claim.device:
            parts[_LOCATION] = new.text(storage.device, shared=True)
        parts[_KEY] = self._text(storage.key)
        parts[_NUMEL] = self.plan(storage.key).nbytes // (max(1, tensor.dtype.bits // 8) if typed else 1)

    def _text(self, key: str) -> String:
        """Return the key of a new storage: one text for all references."""
        if key not in self._texts:
            self._texts[key] = new_text(self._graph.pickle, key)
            self._texts[key].memo = self._graph.new_memo()
        return self._texts[key]

    def fresh(self, tensor: Tensor, new: NewNodes) -> Made:
        """Return a tensor that is made of nothing that the pickle holds, as ``torch.save`` writes it."""
        assert tensor.storage is not None
        reference = self.reference(tensor.storage, tensor.dtype, new)
        sizes = [new.tuple(list(each)) for each in (tensor.shape, tensor.stride)]
        given: list[Value] = [reference, tensor.offset, *sizes, False, new.ordered_dict()]
        if tensor.dtype.storage_class is not None:
            return new.kept(new.called("torch._utils._rebuild_tensor_v2", given))
        given.append(new.named(f"torch.{tensor.dtype.name}"))
        return new.kept(new.called("torch._utils._rebuild_tensor_v3", given))

    def reference(self, storage: Storage, element: DType, new: NewNodes) -> PersistentId:
        """Return a reference to a new storage of this type.

        In torch's first format it has a part more, which tells views.
        """
        kind = f"torch.{element.storage_class}" if element.storage_class else "torch.storage.UntypedStorage"
        count = self.plan(storage.key).nbytes // (max(1, element.bits // 8) if element.storage_class else 1)
        parts: list[Value] = [new.text("storage", shared=True), new.named(kind), self._text(storage.key)]
        parts += [new.text(storage.device, shared=True), count]
        like = next((items(each.id) or [] for each in self._graph.storage_references() if claim_of(each)), [])
        return PersistentId(op.BINPERSID, new.tuple([*parts, *([None] if len(like) > len(parts) else [])]))

    def hold(self, new: NewNodes, data: bytes, element: DType) -> PersistentId:
        """Return a reference to a new storage with these elements, which were in the pickle."""
        self._held += 1
        key = f"array {self._held}"  # never a key of torch, so it is free; it gets a number in the end
        storage = Storage(key, len(data), element, _CPU, None)
        self._plans[key] = StoragePlan(key, len(data), None, storage, data=data)
        return self.reference(storage, element, new)

    # ---- compaction

    def shrink(self) -> None:
        """Storages shrink to the pieces that are wanted of them; tensors that share elements go on sharing them."""
        keys = [key for key in self._wanted.pieces if key in self._old and key in self._goal]
        if not keys:
            return
        users = users_of_storages(self._graph.nodes())
        for key in keys:
            used = users.get(key)
            if used is not None and not used.bare:
                self._shrink(key, used)
        self._graph.rebuilt()

    def _shrink(self, key: str, used: Users) -> None:
        plan, kept = self.plan(key), tuple(self._wanted.pieces[key])
        if any(view.reach and not _lies_in(view.span, kept) for view in used.views):
            raise RefusedError(
                f"Storage {key} cannot be shrunk: a tensor that is not shown, such as an attribute of a "
                "Parameter, views the part that would be removed."
            )
        nbytes = sum(length for _, length in kept)
        if nbytes == plan.nbytes:
            return
        if plan.pieces is None or any(len(items(each.id) or ()) > 5 and _is_view(each) for each in used.references):
            raise RefusedError(f"Storage {key} is a view of another one, so it cannot be shrunk alone.")
        for view in used.views:
            start = _moved(view.span[0], kept) if view.reach else 0
            offset, rest = divmod(start, view.itemsize)
            if rest:
                raise RefusedError(f"Storage {key} holds elements of several sizes, so it cannot be shrunk.")
            view.arguments[1] = offset
        for reference in used.references:
            claim = claim_of(reference)
            assert claim is not None
            self._own_id(reference)[_NUMEL] = nbytes // claim.itemsize
        self._plans[key] = StoragePlan(key, nbytes, narrowed(plan.pieces, kept), plan.old)

    # ---- the result

    def finish(self, renumber: Numbering) -> Edited:
        """Return the plan for every storage of the output, with its key."""
        if self._graph.as_built and not self._plans and renumber is not Numbering.ALWAYS:
            # at most texts were exchanged, so that every reference names what it did
            return Edited(None, tuple(self._old.values()))
        keys = list(dict.fromkeys(self._graph.storage_keys()))
        names = {key: key for key in keys}
        if renumber is Numbering.ALWAYS or set(keys) != set(self._old):
            numbered = renumber is not Numbering.KEPT
            names = {key: str(number) for number, key in enumerate(keys)} if numbered else _named(keys, self._old)
            self._rename(names)
        plans = [(self.plan(key), names[key]) for key in keys]
        return Edited(tuple([plan if plan.key == name else replace(plan, key=name) for plan, name in plans]))

    def _rename(self, names: dict[str, str]) -> None:
        """Put the new keys into the persistent ids; references to one storage share the text of its key."""
        changes: list[NewText] = []
        for reference in self._graph.storage_references():
            claim = claim_of(reference)
            if claim is not None and names[claim.key] != claim.key:
                changes.append(NewText(self._own_id(reference), _KEY, names[claim.key]))
        replace_texts(self._graph, changes)


def _device(graph: GraphEdit, old: Made, tag: str) -> Made:
    """Return ``torch.device`` for a tag such as ``cuda:1``, made like the old one."""
    kind, _, number = tag.partition(":")
    given: list[Value] = [new_text(graph.pickle, kind)]
    if number.isdigit():
        given.append(int(number))
    return Made(op.REDUCE, [old.items[0], Tuple(op.TUPLE1, given)])


def _lies_in(span: tuple[int, int], pieces: Sequence[Piece]) -> bool:
    """Return whether one of the pieces has all the bytes from the first up to the last."""
    return any(start <= span[0] and span[1] <= start + length for start, length in pieces)


def _moved(byte: int, kept: Sequence[Piece]) -> int:
    """Return where a byte is once only the kept ranges are left."""
    passed = 0
    for start, length in kept:
        if start <= byte < start + length:
            return passed + byte - start
        passed += length
    return passed


def _is_view(reference: PersistentId) -> bool:
    claim = claim_of(reference)
    return claim is not None and claim.view is not None


def _made(storage: Storage, holds: elements.Elements, olds: dict[str, Storage]) -> StoragePlan:
    """Return what a new storage is made of: ranges of one storage where its elements are such, or what makes them."""
    key, nbytes = storage.key, storage.nbytes
    sources = tuple(dict.fromkeys(each.source for each in elements.views(holds) if each.held is None))
    old = olds[sources[0]] if sources else storage
    if not nbytes:
        return StoragePlan(key, 0, () if sources else None, old, data=None if sources else b"")
    if isinstance(holds, elements.View) and isinstance(holds.held, (bytes, memoryview)) and holds.contiguous:
        return StoragePlan(key, nbytes, None, storage, data=bytes(holds.held))
    parts = holds.parts if isinstance(holds, elements.Joined) and prod(holds.shape[: holds.dim]) == 1 else (holds,)
    ranges = [
        (part.start, elements.nbytes(part))
        for part in parts
        if isinstance(part, elements.View) and part.contiguous and part.held is None and part.source == old.key
    ]
    if len(ranges) == len(parts):
        return StoragePlan(key, nbytes, tuple([each for each in ranges if each[1]]), old)
    width = nbytes // prod(holds.shape)
    return StoragePlan(key, nbytes, None, old, partial(chunks, holds), sources=sources, itemsize=width)


def _named(keys: list[str], old: dict[str, Storage]) -> dict[str, str]:
    """Return names for new storages that no old one has; the old ones keep theirs."""
    numbers = [int(key) for key in old if key.isascii() and key.isdigit()]
    free = max(numbers, default=-1) + 1
    names = {}
    for key in keys:
        names[key] = key
        if key not in old:
            names[key], free = str(free), free + 1
    return names
