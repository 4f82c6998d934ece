"""Brings a pickle graph from the contents of its file to those that are wanted, whatever edits made them.

Everything that no difference names stays as it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from ckptdoctor import checkpoint as nouns
from ckptdoctor.checkpoint import KeyPath, Node, Part, Storage, Tensor, show_path
from ckptdoctor.checkpoint.changed_trees import source_of
from ckptdoctor.edits import Convert, Repickle, SetMetadata, TextMetadata, Truncate, WriteIndex
from ckptdoctor.edits.applied.repickling import repickle as repickled
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch.patch.graph_edit import GraphEdit
from ckptdoctor.formats.torch.patch.new_nodes import (
    NewNodes,
    NewText,
    from_plain,
    plain_data,
    plain_key,
    replace_texts,
    text_becomes,
)
from ckptdoctor.formats.torch.patch.new_storages import NewStorages
from ckptdoctor.formats.torch.patch.repickle import repickle, require_none
from ckptdoctor.formats.torch.patch.set_entries import new_names, put_in_order, set_entries
from ckptdoctor.formats.torch.patch.storage_plans import Edited, Numbering
from ckptdoctor.formats.torch.patch.tree_changes import (
    Change,
    Entered,
    Entries,
    Exchanged,
    Kept,
    Places,
    Renamed,
    Retargeted,
    tree_changes,
)
from ckptdoctor.formats.torch.patch.wrappers import Detacher, move_to_cpu, sparse_in, unwrap
from ckptdoctor.formats.torch.read.objects import ORDERED_DICT
from ckptdoctor.formats.torch.read.slots import Children, Slot, children, key_slots
from ckptdoctor.formats.torch.read.values import bare, call, full_name
from ckptdoctor.formats.torch.read.views import PARAMETER_MAKERS
from ckptdoctor.noun import replace
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, Pickle, String, Tuple, Value

_Keys = list[tuple[list[Value], int]]  # holders with indices


def reconcile(
    pickle: Pickle, storages: Sequence[Storage], wanted: Wanted, *, renumber: Numbering = Numbering.AS_NEEDED
) -> Edited:
    """Let the graph of ``pickle`` say what is wanted, in place.

    ``storages`` are all that the pickle names; ``renumber`` says when they get new keys. Raises RefusedError, naming
    the key path, for what cannot be said in a pickle; the graph is then of no further use.
    """
    _require_contents_alone(wanted)
    graph = GraphEdit(pickle)
    before, frozen = wanted.original, list[Value]()
    for edit in wanted.edits:
        if isinstance(edit, Repickle):  # protocols are in no noun
            frozen += repickle(graph, edit)
            before = repickled(before, edit)
    edited = NewStorages(graph, storages, wanted)
    places = Places(before.tree)
    found = list(tree_changes(before.tree, wanted.contents.tree, places))
    _before_the_rest(graph, edited, wanted)
    if found:
        _Reconciler(graph, edited, places, found).bring_about()
    edited.shrink()
    graph.rejoin()
    require_none(frozen, pickle.root)
    finished = edited.finish(renumber)
    graph.close()
    return finished


def _require_contents_alone(wanted: Wanted) -> None:
    """Raise RefusedError for edits that do not concern a pickle of torch."""
    for edit in wanted.edits:
        other = isinstance(edit, Convert) and edit.format not in (wanted.original.format, "torch zip")
        if other or isinstance(edit, (SetMetadata, TextMetadata, Truncate, WriteIndex)):
            raise RefusedError(f"{type(edit).__name__} is not an edit of a torch file's contents.")


def _before_the_rest(graph: GraphEdit, storages: NewStorages, wanted: Wanted) -> None:
    """Do what does not depend on the place: move tensors to the CPU, open wrappers, retag storages."""
    made = [each for each in wanted.contents.tensors if each.origin is not None]
    odd = [each for each in made if each.parts or (each.origin is not None and each.origin.moved)]
    devices = {old.device for new in odd for old in _moved_parts(new)}
    move_to_cpu(graph, storages, devices)
    wrappers = {id(part): each for each in wanted.original.tensors if each.subclass for part in each.parts}
    opened = [wrappers[id(each.origin)] for each in made if id(each.origin) in wrappers] if wrappers else []
    unwrap(graph, {each.subclass or "" for each in opened})
    storages.retag()


def _moved_parts(new: Tensor) -> Iterator[Tensor]:
    """Yield the tensors of the file, this one or parts of it, that loading moved elsewhere and no longer does."""
    old = source_of(new)
    if isinstance(old, Tensor) and old is not new:
        if old.moved and not new.moved:
            yield old
        for part in new.parts:
            yield from _moved_parts(part)


class _Reconciler:
    """Does all changes of one graph. Places are found before anything is moved, and everything is moved at the end."""

    def __init__(self, graph: GraphEdit, storages: NewStorages, places: Places, changes: Sequence[Change]) -> None:
        self._graph = graph
        self._storages = storages
        self._places = places
        self._key_slots: dict[KeyPath, tuple[int, _Keys]] = {}  # with how many nodes had been copied by then
        self._changes = [self._usual(each) for each in changes]
        self._keys: list[tuple[Renamed, _Keys]] = []
        self._texts: list[NewText] = []
        self._children = self._found_children()
        self._elsewhere: dict[KeyPath, Value] = {}

    @cached_property
    def _new(self) -> NewNodes:
        return NewNodes(self._graph)

    @cached_property
    def _detacher(self) -> Detacher:
        return Detacher(self._graph, self._new)

    def bring_about(self) -> None:
        """Change the graph."""
        self._elsewhere = self._values_elsewhere()
        entries = [(each, self._entered(each)) for each in self._changes if isinstance(each, Entries)]
        exchanged = [(self._slot(each.path), each) for each in self._changes if isinstance(each, Exchanged)]
        retargeted = [
            self._retarget(self._slot(each.path), each.before, each.after, each.path)
            for each in self._changes
            if isinstance(each, Retargeted)
        ]
        put = [(slot, *self._exchanged(slot, each)) for slot, each in exchanged]
        nodes = {each.path: self._graph.node(each.path) for each, _ in entries}
        for each, _ in entries:
            self._texts += new_names(each, self._children[each.path], self._graph.pickle)
        for renamed, keys in self._keys:
            both = zip(keys, renamed.before, renamed.after, strict=True)
            self._texts += [
                text_becomes((*key, str(now))) for key, was, now in both if was != now or type(was) is not type(now)
            ]
        replace_texts(self._graph, self._texts)
        for slot, there, value in put:
            if there:
                slot.put(value)
        for each, entered in entries:
            put_in_order(each, self._children[each.path])
            set_entries(each, self._children[each.path], entered, nodes[each.path])
        if any(retargeted) or any(map(_moves_nodes, self._changes)):
            self._graph.rebuilt()

    # ---- places

    def _found_children(self) -> dict[KeyPath, Children]:
        """Return what is in every container in which something changes, once each belongs to one place only."""
        parents: dict[KeyPath, None] = {}
        for each in self._changes:
            if isinstance(each, Entries):
                parents[each.path] = None
            elif each.path and not isinstance(each, Renamed):
                parents[each.path[:-1]] = None
        renames = [each for each in self._changes if isinstance(each, Renamed)]
        while True:  # everything is copied that must be before any place is remembered
            copies = self._graph.copies
            found = {parent: self._graph.children(parent) for parent in parents}
            self._keys = [(each, self._keys_of(each)) for each in renames]
            if self._graph.copies == copies:
                return found

    def _usual(self, change: Change) -> Change:
        """Return the change; a dict whose keys are written in an unusual way is looked at entry by entry."""
        if not isinstance(change, Renamed):
            return change
        found = key_slots(self._graph.node(change.path), change.before)
        if found is None:
            return change.entries
        self._key_slots[change.path] = self._graph.copies, found
        return change

    def _keys_of(self, change: Renamed) -> _Keys:
        node = self._graph.node(change.path)
        copies, known = self._key_slots[change.path]
        if copies == self._graph.copies:
            return known
        found = key_slots(node, change.before)
        assert found is not None  # ``_usual`` has looked
        return found

    def _slot(self, path: KeyPath) -> Slot:
        if not path:
            return self._graph.root
        each = self._children[path[:-1]].get(path[-1])
        if each is None:
            raise RefusedError(f"There is nothing at {show_path(path)} to change.")
        return each[-1].value

    def _values_elsewhere(self) -> dict[KeyPath, Value]:
        """Return the current values at the old places of nodes that get another place."""
        nodes = [each.node for each in self._changes if isinstance(each, Exchanged)]
        for change in self._changes:
            if isinstance(change, Entries):
                nodes += [each.node for each in change.after if isinstance(each, Entered)]
        wanted: list[KeyPath] = []
        for node in nodes:
            inside = [value for _, value in node.entries] if isinstance(node, nouns.Mapping) else []
            wanted += [there[0] for each in (node, *inside) if (there := self._places.of(each)) is not None]
        paths = list(dict.fromkeys(wanted))
        return dict(zip(paths, _values_at(self._graph.root.value, paths), strict=True))

    # ---- values

    def _retarget(self, slot: Slot, before: Tensor, after: Tensor, path: KeyPath) -> bool:
        """Let the tensor in a slot be another one. False where only its name is another."""
        if before.layout != "strided" and after.layout == "strided":
            slot = sparse_in(self._graph, slot, path)
            slot.put(self._storages.fresh(after, self._new))
            return True
        detached, another = _is_detached(before, after), self._storages.is_another(before, after)
        if detached:
            slot.put(self._detacher.detached(slot.value))
        if another:
            self._storages.show(self._storages.view(slot, path, "changed"), after, self._new)
        return detached or another

    def _exchanged(self, slot: Slot, change: Exchanged) -> tuple[bool, Value]:
        """Return whether something is to be put into the slot, and what: a text is exchanged with all others."""
        old, node = bare(slot.value), change.node
        if isinstance(node, str) and isinstance(old, String):
            self._texts.append(NewText(slot.holder, slot.index, node))
            return False, None
        there = self._places.of(node)
        if there is not None and not isinstance(node, Tensor):
            return True, self._elsewhere[there[0]]
        return True, self._made(node)

    def _made(self, node: Node) -> Value:
        """Return a node that was not in the file, or a tensor that is somewhere else in it."""
        if isinstance(node, Tensor):
            there = self._places.of(node)
            if there is None:
                return self._storages.fresh(node, self._new)
            path, source = there
            assert isinstance(source, Tensor)
            slot = Slot([self._detacher.detached(self._elsewhere[path])], 0)
            self._retarget(slot, _detached_like(source, node), node, path)
            return slot.value
        if isinstance(node, nouns.Mapping) and node.kind == ORDERED_DICT:
            entries = [each for part, value in node.entries for each in (self._key(part), self._made(value))]
            return self._new.ordered_dict(entries)
        return from_plain(self._graph.pickle, plain_data(node))

    def _key(self, part: Part) -> Value:
        return self._new.text(part) if isinstance(part, str) else from_plain(self._graph.pickle, plain_key(part))

    def _entered(self, change: Entries) -> list[tuple[Value, Value] | None]:
        """Return the key and value of each new entry, before anything is changed, or None for those that were there."""
        made: list[tuple[Value, Value] | None] = []
        for entry in change.after:
            if isinstance(entry, Kept):
                made.append(None)
                continue
            there = self._places.of(entry.node) if isinstance(entry.node, Tensor) else None
            if there is None:
                made.append((self._key(entry.part), self._made(entry.node)))
                continue
            path, source = there
            assert isinstance(source, Tensor)
            assert isinstance(entry.node, Tensor)
            slot = Slot([self._another(self._elsewhere[path], path)], 0)
            self._retarget(slot, source, entry.node, path)
            made.append((self._key(entry.part), slot.value))
        return made

    def _another(self, value: Value, path: KeyPath) -> Made:
        """Return a copy of the call that makes a tensor, and of those inside it that make it, too."""
        node = bare(value)
        if not isinstance(node, Made) or node.op != op.REDUCE or node.steps:
            raise RefusedError(f"{show_path(path)} is made in an unusual way, so it cannot be made again.")
        callee, arguments, _ = call(node)
        name = full_name(callee) or ""
        if name not in PARAMETER_MAKERS and not name.startswith("torch._utils._rebuild_tensor"):
            raise RefusedError(f"{show_path(path)} is not a tensor of torch's own class, so it cannot be made again.")
        copy = self._new.again(node)
        if name in PARAMETER_MAKERS and arguments:
            given = bare(copy.items[1])
            assert isinstance(given, Tuple)
            given.items[0] = self._another(arguments[0], path)
        return self._new.kept(copy)


def _values_at(root: Value, paths: Sequence[KeyPath]) -> list[Value]:
    """Return the value at each of these paths; every object on the way is read once, and none is copied."""
    found: list[Value] = [None] * len(paths)
    stack: list[tuple[Value, int, list[int]]] = [(root, 0, list(range(len(paths))))]
    while stack:
        node, depth, wanted = stack.pop()
        by_part: dict[Part, list[int]] = {}
        for index in wanted:
            if len(paths[index]) == depth:
                found[index] = node
            else:
                by_part.setdefault(paths[index][depth], []).append(index)
        below = children(node) if by_part else {}
        for part, indices in by_part.items():
            if part not in below:
                raise RefusedError(f"There is nothing at {show_path(paths[indices[0]][: depth + 1])} to change.")
            stack.append((below[part][-1].value.value, depth + 1, indices))
    return found


def _is_detached(before: Tensor, after: Tensor) -> bool:
    """Return whether a tensor loses what a Parameter is, or attributes of its own."""
    if (before.is_parameter, before.requires_grad) != (after.is_parameter, after.requires_grad):
        return True
    return before.rebuild != after.rebuild and not (before.moved and not after.moved)


def _detached_like(before: Tensor, after: Tensor) -> Tensor:
    return replace(before, is_parameter=after.is_parameter, requires_grad=after.requires_grad, rebuild=after.rebuild)


def _moves_nodes(change: Change) -> bool:
    """Return whether nodes come, go or change places.

    A new name does not, and leaves the numbers of the memo as they are.
    """
    if isinstance(change, Exchanged):
        return True
    if isinstance(change, (Renamed, Retargeted)):
        return False  # of tensors what was done tells
    return [each.was if isinstance(each, Kept) else each for each in change.after] != [*change.before]
