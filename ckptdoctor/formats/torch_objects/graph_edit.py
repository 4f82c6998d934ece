"""A pickle graph while it is edited: places by key path, and what is shared between them."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.checkpoint import KeyPath, show_path
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_objects.memo_numbers import renumber_memo
from ckptdoctor.formats.torch_objects.scan import Scan, scan
from ckptdoctor.formats.torch_objects.shapes import Kind, shape_of
from ckptdoctor.formats.torch_objects.slots import Child, Children, Slot, children
from ckptdoctor.formats.torch_objects.sweep import below
from ckptdoctor.formats.torch_objects.values import bare
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import NO_MEMO, Made, Node, PersistentId, Pickle, Popped, Step, Tuple, Value

# a frame that fits nowhere: the encoder then cuts frames anew, as a pickler does; the old ones could end anywhere
_NO_FRAME = (0, 0)


class GraphEdit:
    """Finds places in a graph and changes them there only.

    A list or dict that two places share through the memo is copied before it is changed at one of them (its contents
    stay shared), so that the other place keeps what it had.
    """

    def __init__(self, pickle: Pickle) -> None:
        self.pickle = pickle
        self._root = [pickle.root]
        self._scan: Scan | None = None
        self._rebuilt = False  # nodes came or went, so that the memo has gaps

    @property
    def root(self) -> Slot:
        """The slot of the whole contents."""
        return Slot(self._root, 0)

    def close(self) -> None:
        """Give the pickle its root back, and the memo its order."""
        self.pickle.root = self._root[0]
        if self.pickle.frames:
            self.pickle.frames = [_NO_FRAME]
        if self._rebuilt and not self.pickle.memoize:
            renumber_memo(self.pickle)

    def references(self, node: Node) -> int:
        """From how many places the graph leads to a node; places inside the node itself do not count."""
        return self._scanned().counts.get(id(node), 1)

    def nodes(self) -> list[Node]:
        """All nodes that hold others, in stream order."""
        return self._scanned().nodes

    def _scanned(self) -> Scan:
        if self._scan is None:
            self._scan = scan(self._root[0])
        return self._scan

    def storage_references(self) -> list[PersistentId]:
        """Every persistent id, in the order in which the stream loads them."""
        return [node for node in self.nodes() if type(node) is PersistentId]

    def recount(self, node: Node, change: int) -> None:
        """So many more places (fewer, where negative) lead to a node that holds no others."""
        scanned = self._scanned()
        scanned.counts[id(node)] = scanned.counts.get(id(node), 0) + change
        scanned.kept.append(node)

    def rebuilt(self) -> None:
        """Nodes came or went."""
        self._rebuilt = True
        self._scan = None

    # ---- places

    def slot(self, path: KeyPath) -> Slot:
        """The slot of the value at ``path``, which can be changed there alone. Raises RefusedError without one."""
        return self.child(path).value if path else self.root

    def child(self, path: KeyPath) -> Child:
        """The last of the children at ``path``. Raises RefusedError when there is none."""
        return _last(self.children(path[:-1]), path)

    def node(self, path: KeyPath) -> Value:
        """The value at ``path``, once it belongs to that path alone. Raises RefusedError when there is none."""
        slot = self.root
        self.own(slot)
        for index in range(len(path)):
            slot = self._owned_child(slot, path[: index + 1]).value
            self.own(slot)
        return bare(slot.value)

    def children(self, path: KeyPath) -> Children:
        """The children of the node at ``path``, which belongs to that path alone."""
        node = self.node(path)
        while True:
            found = children(node)
            ways = {(id(via.holder), via.index): via for each in found.values() for child in each for via in child.via}
            if not [via for via in ways.values() if self.own(via)]:
                return found

    def _owned_child(self, slot: Slot, path: KeyPath) -> Child:
        node = bare(slot.value)
        child = _last(children(node), path)
        if [via for via in child.via if self.own(via)]:
            child = _last(children(node), path)
        return child

    def mapping(self, path: KeyPath) -> Made:
        """The dict at ``path``. Raises RefusedError when something else is there."""
        node = self.node(path)
        if not isinstance(node, Made) or shape_of(node).kind is not Kind.MAPPING:
            raise RefusedError(f"What lies at {show_path(path)} is no dict, and has no keys to change.")
        return node

    def own(self, slot: Slot) -> bool:
        """Copy what stands in a slot when other places share it. True when it was copied."""
        node = slot.value
        if isinstance(node, Popped) or not isinstance(node, (Made, Tuple)) or self.references(node) < 2:
            return False
        scanned = self._scanned()
        if id(node) in scanned.looping:
            raise RefusedError(
                "Something that contains itself stands in two places, and cannot be changed in one alone."
            )
        copy = _copied(node)
        slot.put(copy)
        counts = scanned.counts
        counts[id(node)] -= 1
        counts[id(copy)] = 1
        scanned.nodes.append(copy)
        for inside in below(copy):
            if isinstance(inside, Node):
                counts[id(inside)] = counts.get(id(inside), 1) + 1
            if isinstance(inside, (Made, Tuple)) and inside.memo == NO_MEMO and inside.op != op.EMPTY_TUPLE:
                inside.memo = self.new_memo()  # two places share it from now on
        return True

    def remove(self, owners: Iterable[Made], dropped: Iterable[Child]) -> None:
        """Take children out of what holds them, and the steps of ``owners`` that are empty then."""
        by_holder: dict[int, tuple[list[Value], set[int]]] = {}
        for child in dropped:
            if child.first is not None:
                holder, gone = by_holder.setdefault(id(child.first.holder), (child.first.holder, set()))
                gone.update(range(child.first.index, child.first.index + child.width))
        for holder, gone in by_holder.values():
            holder[:] = [value for index, value in enumerate(holder) if index not in gone]
        for owner in owners:
            emptied = [step for step in owner.steps or () if not step.payload and id(step.payload) in by_holder]
            if owner.steps is not None and emptied:
                owner.steps = [step for step in owner.steps if not any(step is each for each in emptied)] or None
        self.rebuilt()

    def new_memo(self) -> int:
        """A memo index that no node has yet."""
        self._rebuilt = True
        self.pickle.next_memo += 1
        return self.pickle.next_memo - 1


def _copied(node: Made | Tuple) -> Made | Tuple:
    """A copy that holds the same values; what was done to the original, in one place or later, is done at once."""
    if isinstance(node, Tuple):
        return Tuple(node.op, list(node.items))
    copy = Made(node.op, list(node.items), NO_MEMO)
    steps = [Step(step.op, list(step.payload)) for step in node.steps or () if step.payload]
    copy.steps = steps or None
    return copy


def _last(found: Children, path: KeyPath) -> Child:
    """The child at the end of ``path``, of a key that repeats the one that counts."""
    if path[-1] not in found:
        raise RefusedError(f"There is nothing at {show_path(path)} to change.")
    return found[path[-1]][-1]
