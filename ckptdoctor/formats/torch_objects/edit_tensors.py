"""Edits of tensors on the graph: reshape, transpose, fill, split, fuse; with the entries of state dicts that change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Union

from ckptdoctor.checkpoint import KeyPath, Part, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits import Edit, Fill, Fuse, Reshape, Split, Transpose
from ckptdoctor.edits.elements import Elements
from ckptdoctor.edits.kinds import Compute, Dequantize, FuseNorm, Tie
from ckptdoctor.edits.quantization import AFFINE
from ckptdoctor.edits.tensors import (
    ENTERING,
    TENSOR_EDITS,
    TensorEdit,
    gone_keys,
    made,
    new_keys,
    place_of,
    sources,
    with_new,
)
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_objects.edit_storages import StorageEdits
from ckptdoctor.formats.torch_objects.graph_edit import GraphEdit
from ckptdoctor.formats.torch_objects.new_nodes import NewNodes
from ckptdoctor.formats.torch_objects.shapes import shape_of
from ckptdoctor.formats.torch_objects.slots import Child, Children, Slot
from ckptdoctor.formats.torch_objects.values import bare, call, full_name, items
from ckptdoctor.formats.torch_objects.views_in_graph import PARAMETER_MAKERS, View, tuple_of
from ckptdoctor.noun import noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, Step, Tuple, Value

_VERBS = {
    Reshape: "reshaped",
    Transpose: "transposed",
    Split: "split",
    Fuse: "fused",
    FuseNorm: "computed",
    Dequantize: "computed",
    Compute: "computed",
    Tie: "tied",
}


@noun(frozen=False)
class _Entries:
    """What happens to the entries of one state dict: new ones (key, value) behind others, and keys that go."""

    behind: dict[str | None, list[tuple[str, Value]]] = field(default_factory=dict)
    gone: dict[str, None] = field(default_factory=dict)


def edit_tensors(graph: GraphEdit, storages: StorageEdits, run: Sequence[Edit]) -> None:
    """Apply edits of one kind that touch different tensors (``edits.tensors.runs``). Raises RefusedError."""
    edits = [edit for edit in run if isinstance(edit, TENSOR_EDITS)]
    parents = dict.fromkeys([path[:-1] for edit in edits for path in sources(edit) if path])
    parents.update(dict.fromkeys([place_of(edit) for edit in edits if isinstance(edit, ENTERING)]))
    for parent in parents:
        graph.children(parent)  # everything is copied that must be before any place is remembered
    found = {parent: graph.children(parent) for parent in parents}
    changed: dict[KeyPath, _Entries] = {}
    writer = _Writer(graph, storages, found)
    for edit in edits:
        if isinstance(edit, (Reshape, Transpose)):
            writer.change(edit)
        elif isinstance(edit, (Split, Fuse, FuseNorm)):
            writer.exchange(edit, changed.setdefault(place_of(edit), _Entries()))
        elif isinstance(edit, (Dequantize, Compute)):
            writer.compute(edit, changed.setdefault(place_of(edit), _Entries()))
        elif isinstance(edit, Tie):
            writer.tie(edit, changed.setdefault(place_of(edit), _Entries()))
    fills: dict[KeyPath, list[Fill]] = {}
    for edit in edits:
        if isinstance(edit, Fill):
            fills.setdefault(place_of(edit), []).append(edit)
    for place, wanted in fills.items():
        writer.fill(wanted, _keys(found[place]), changed.setdefault(place, _Entries()))
    for place, entries in changed.items():
        _put(graph, writer.new, place, found[place], entries)
    graph.rebuilt()


def _keys(found: Children) -> list[str]:
    return [part for part, each in found.items() if isinstance(part, str) and each[-1].key is not None]


class _Writer:
    """Makes the views and nodes of edited tensors."""

    def __init__(self, graph: GraphEdit, storages: StorageEdits, found: Mapping[KeyPath, Children]) -> None:
        self._graph = graph
        self._storages = storages
        self._found = found
        self._orders: dict[KeyPath, dict[Part, int]] = {}
        self.new = NewNodes(graph)

    def _slot(self, path: KeyPath) -> Slot:
        if not path:
            return self._graph.root
        each = self._found[path[:-1]].get(path[-1])
        if each is None:
            raise RefusedError(f"There is nothing at {show_path(path)} to change.")
        return each[-1].value

    def _given(self, edit: TensorEdit) -> list[View]:
        return [self._storages.view(self._slot(path), path, _VERBS[type(edit)]) for path in sources(edit)]

    def _made(self, edit: TensorEdit, views: Sequence[View]) -> Iterator[tuple[Elements, Elements]]:
        """What each new tensor holds, in terms of the storages as they are now, and of those of the original."""
        now = made(edit, [(view.dtype, self._storages.elements_of(view)) for view in views])
        return zip(now, made(edit, [(view.dtype, self._storages.original(view)) for view in views]), strict=True)

    def change(self, edit: Union[Reshape, Transpose]) -> None:
        """Another shape for a tensor that stays where it is."""
        (view,) = self._given(edit)
        (elements,) = self._made(edit, [view])
        if isinstance(edit, Reshape) and self._storages.elements_of(view).contiguous:
            view.arguments[2], view.arguments[3] = tuple_of(edit.shape), tuple_of(contiguous_stride(edit.shape))
        else:
            self._storages.put(view, *elements)

    def exchange(self, edit: Union[Split, Fuse, FuseNorm], entries: _Entries) -> None:
        """Other tensors in place of some."""
        views = self._given(edit)
        if len({view.claim.device for view in views}) > 1:
            raise RefusedError(f"The parts of {new_keys(edit)[0]} are tagged with different devices; retag them first.")
        place, old = place_of(edit), [str(path[-1]) for path in sources(edit)]
        first = min(old, key=lambda key: self._order(place)[key])
        like = self._slot(sources(edit)[0]).value
        for key, elements in zip(new_keys(edit), self._made(edit, views), strict=True):
            slot = Slot([self._another(like, sources(edit)[0])], 0)
            self._storages.put(self._storages.view(slot, (*place, key), "made"), *elements)
            entries.behind.setdefault(first, []).append((key, slot.value))
        entries.gone.update(dict.fromkeys(old))

    def compute(self, edit: Union[Dequantize, Compute], entries: _Entries) -> None:
        """A new tensor, with nothing of the old ones but their place and their device."""
        views = self._given(edit)
        if isinstance(edit, Dequantize):
            views = [part for view in views for part in self._with_channels(view, edit)]
        if len({view.claim.device for view in views}) != 1:
            raise RefusedError(f"The parts of {edit.key} are tagged with different devices; retag them first.")
        ((now, origin),) = self._made(edit, views)
        old = gone_keys(edit)
        first = min(old, key=lambda key: self._order(edit.place)[key])
        value = self._tensor(edit.dtype, now, views[0].claim.device, origin)
        entries.behind.setdefault(first, []).append((edit.key, value))
        entries.gone.update(dict.fromkeys(old))

    def _with_channels(self, view: View, edit: Dequantize) -> list[View]:
        """The view, and those of scales and zero points where a quantised tensor has several of each."""
        given = items(view.arguments[4]) if edit.scheme == AFFINE and len(view.arguments) > 4 else None
        if given is None or len(given) < 4:
            return [view]
        path = edit.paths[0]
        return [view, *[self._storages.view(Slot(given, at), path, _VERBS[type(edit)]) for at in (1, 2)]]

    def tie(self, edit: Tie, entries: _Entries) -> None:
        """The same tensor under a second name: another view of the same storage."""
        self._given(edit)  # refuses what is no plain tensor
        copy = self._another(self._slot(edit.path).value, edit.path)
        entries.behind.setdefault(str(edit.path[-1]), []).append((edit.key, copy))

    def _order(self, place: KeyPath) -> dict[Part, int]:
        if place not in self._orders:
            self._orders[place] = {part: number for number, part in enumerate(self._found[place])}
        return self._orders[place]

    def _another(self, value: Value, path: KeyPath) -> Made:
        """A copy of the call that makes a tensor, and of those inside it that make it, too."""
        node = bare(value)
        if not isinstance(node, Made) or node.op != op.REDUCE or node.steps:
            raise RefusedError(f"{show_path(path)} is made in an unusual way, and cannot be split or fused.")
        callee, arguments, _ = call(node)
        name = full_name(callee) or ""
        if name not in PARAMETER_MAKERS and not name.startswith("torch._utils._rebuild_tensor"):
            raise RefusedError(f"{show_path(path)} is no tensor of torch's own class, and cannot be split or fused.")
        copy = self.new.again(node)
        if name in PARAMETER_MAKERS and arguments:
            given = bare(copy.items[1])
            assert isinstance(given, Tuple)
            given.items[0] = self._another(arguments[0], path)
        return self.new.kept(copy)

    def fill(self, edits: Sequence[Fill], keys: Sequence[str], entries: _Entries) -> None:
        """New tensors, each behind its siblings."""
        wanted = {str(edit.path[-1]): edit for edit in edits}
        old: str | None = None
        for key in with_new([key for key in keys if key not in wanted], wanted):
            if key in wanted:
                entries.behind.setdefault(old, []).append((key, self._filled(wanted[key])))
            else:
                old = key

    def _filled(self, edit: Fill) -> Value:
        (elements,) = made(edit, [])
        return self._tensor(edit.dtype, elements, edit.device)

    def _tensor(self, dtype: str, made: Elements, device: str, origin: Elements | None = None) -> Value:
        """A new tensor with these elements. ``origin``: see ``StorageEdits.put``."""
        element = BY_NAME[dtype]
        reference = self._storages.reference(self.new, made, element, device, origin)
        sizes = [self.new.tuple(list(each)) for each in (made.shape, contiguous_stride(made.shape))]
        given: list[Value] = [reference, 0, *sizes, False, self.new.ordered_dict()]
        if element.storage_class is not None:
            return self.new.kept(self.new.called("torch._utils._rebuild_tensor_v2", given))
        given.append(self.new.named(f"torch.{element.name}"))
        return self.new.kept(self.new.called("torch._utils._rebuild_tensor_v3", given))


def _put(graph: GraphEdit, nodes: NewNodes, place: KeyPath, found: Children, entries: _Entries) -> None:
    """Put the new entries into the dict at ``place``, and take out those that go. Raises RefusedError."""
    taken = set(_keys(found)) - entries.gone.keys()
    for key, _ in (new for each in entries.behind.values() for new in each):
        if key in taken:
            raise RefusedError(f"“{key}” is already there in {show_path(place)}; drop or rename it first.")
        taken.add(key)
    mapping = graph.mapping(place)
    holders: dict[int, list[Value]] = {}
    changes: dict[int, tuple[dict[int, list[Value]], set[int]]] = {}  # by holder: new values before, old ones out
    for anchor, new in entries.behind.items():
        values = [each for key, value in new for each in (nodes.text(key), value)]
        if anchor is None:
            _into_empty(mapping, values)
            continue
        holder, index = _only(found, anchor, place)
        holders[id(holder)] = holder
        changes.setdefault(id(holder), ({}, set()))[0].setdefault(index + 2, []).extend(values)
    for key in entries.gone:
        holder, index = _only(found, key, place)
        holders[id(holder)] = holder
        changes.setdefault(id(holder), ({}, set()))[1].update((index, index + 1))
    for number, (before, out) in changes.items():
        holder = holders[number]
        holder[:] = list(_woven(list(holder), before, out))
    _with_sound_steps(mapping, holders)


def _woven(old: list[Value], before: dict[int, list[Value]], out: set[int]) -> Iterator[Value]:
    for index in range(len(old) + 1):
        yield from before.get(index, ())
        if index < len(old) and index not in out:
            yield old[index]


def _only(found: Children, key: str, place: KeyPath) -> tuple[list[Value], int]:
    """Where the entry of a key stands: the list, and the index of the key in it, which the value follows."""
    each: list[Child] = found.get(key, [])
    if len(each) != 1 or each[0].first is None or each[0].width != 2:
        raise RefusedError(f"The entry {show_path((*place, key))} is written in an unusual way, and cannot be changed.")
    return each[0].first.holder, each[0].first.index


def _into_empty(mapping: Made, values: list[Value]) -> None:
    filled = shape_of(mapping).filled
    node = filled if isinstance(filled, Made) else mapping
    node.steps = [Step(op.SETITEMS, values), *(node.steps or [])]


def _with_sound_steps(mapping: Made, holders: Mapping[int, list[Value]]) -> None:
    """Steps that set no entry any more go, and one that set a single entry may have to set several."""
    filled = shape_of(mapping).filled
    for node in {id(each): each for each in (mapping, filled) if isinstance(each, Made)}.values():
        for step in node.steps or ():
            if step.op == op.SETITEM and id(step.payload) in holders and len(step.payload) > 2:
                step.op = op.SETITEMS
        kept = [step for step in node.steps or () if step.payload or id(step.payload) not in holders]
        node.steps = kept or None
