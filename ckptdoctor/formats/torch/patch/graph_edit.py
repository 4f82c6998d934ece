"""A pickle graph is edited: it is asked for places by key path, and for what is shared between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

from ckptdoctor.checkpoint import KeyPath, show_path
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch.read.slots import Child, Children, Slot, children
from ckptdoctor.formats.torch.read.storages import claim_of
from ckptdoctor.formats.torch.read.values import bare
from ckptdoctor.noun import field, noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import (
    NO_MEMO,
    Constant,
    Extension,
    FoldedTensor,
    Form,
    Global,
    Made,
    Mutation,
    PersistentId,
    Pickle,
    PickleNode,
    Popped,
    Revisit,
    String,
    Tuple,
    Value,
    Verbatim,
    folded_in,
    folded_references,
    values_inside,
    values_inside_folded,
)

# a frame that fits nowhere: the encoder then cuts frames anew, as a pickler does; the old ones could end anywhere
_NO_FRAME = (0, 0)


class GraphEdit:
    """Finds places in a graph and changes them there only.

    A list or dict that two places share through the memo is copied before it is changed at one of them (its contents
    stay shared), so that the other place keeps what it had. Where both have come out the same in the end, they are one
    again (``rejoin``): who changed both meant the one thing that they were.
    """

    def __init__(self, pickle: Pickle) -> None:
        self.pickle = pickle
        self._root = [pickle.root]
        self._scan: Scan | None = None
        self._rebuilt = False  # nodes came or went, so that the memo has gaps
        self._before: list[PickleNode] = []  # the nodes that there were before the first was copied
        self._copies: list[tuple[Made | Tuple, Made | Tuple]] = []  # (original, copy), in their order

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

    def references(self, node: PickleNode) -> int:
        """Count the places from which the graph leads to a node; those inside the node itself do not count."""
        return self._scanned().counts.get(node, 1)

    def all_references(self) -> Mapping[PickleNode, int]:
        """Return the same of many nodes: for who asks of each."""
        return self._scanned().counts

    def nodes(self) -> list[PickleNode]:
        """Return all nodes that hold others, in stream order."""
        return self._scanned(folded=False).nodes

    def _scanned(self, folded: bool = True) -> Scan:
        """Return the graph as it is now, in which tensors may have stayed folded.

        What is inside one has one place alone.
        """
        if self._scan is None or (self._scan.folded and not folded):
            self._scan = scan(self._root[0], folded)
        return self._scan

    def storage_keys(self) -> Iterator[str]:
        """Yield the key of the storage that each reference names, in stream order."""
        usual: dict[Form, bool] = {}  # whether tensors of a form name storages
        for reference in folded_references(self._root[0]):
            if isinstance(reference, FoldedTensor):
                form = reference.form
                if form not in usual:
                    usual[form] = claim_of(reference) is not None
                if usual[form]:
                    yield reference.key
                continue
            claim = claim_of(reference)
            if claim is not None:
                yield claim.key

    def storage_references(self) -> list[PersistentId]:
        """Return every persistent id, in the order in which the stream loads them."""
        return [node for node in self.nodes() if type(node) is PersistentId]

    def recount(self, node: PickleNode, change: int) -> None:
        """Count so many more places (fewer, where negative) that lead to a node that holds no others."""
        counts = self._scanned().counts
        counts[node] = counts.get(node, 0) + change

    @property
    def as_built(self) -> bool:
        """Whether no node came, went or was copied: at most texts were exchanged."""
        return not self._rebuilt and not self._copies

    def rebuilt(self) -> None:
        """Note that nodes came or went."""
        self._rebuilt = True
        self._scan = None

    # ---- places

    def node(self, path: KeyPath) -> Value:
        """Return the value at ``path``, once it belongs to that path alone. Raises RefusedError when there is none."""
        slot = self.root
        self.own(slot)
        for index in range(len(path)):
            slot = self._owned_child(slot, path[: index + 1]).value
            self.own(slot)
        return bare(slot.value)

    @property
    def copies(self) -> int:
        """How many nodes were copied so far."""
        return len(self._copies)

    def children(self, path: KeyPath) -> Children:
        """Return the children of the node at ``path``, which belongs to that path alone."""
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

    def own(self, slot: Slot) -> bool:
        """Copy what is in a slot when other places share it. True when it was copied."""
        node = slot.value
        if isinstance(node, Popped) or not isinstance(node, (Made, Tuple)) or self.references(node) < 2:
            return False
        scanned = self._scanned(folded=False)
        if node in scanned.looping:
            raise RefusedError(
                "An object that contains itself is in two places, and cannot be changed in only one of them."
            )
        copy = _copied(node)
        slot.put(copy)
        self._before = self._before or list(scanned.nodes)
        self._copies.append((node, copy))
        counts = scanned.counts
        counts[node] -= 1
        counts[copy] = 1
        scanned.nodes.append(copy)
        for inside in values_inside(copy):
            if isinstance(inside, PickleNode):
                counts[inside] = counts.get(inside, 1) + 1
            if isinstance(inside, (Made, Tuple)) and inside.memo == NO_MEMO and inside.op != op.EMPTY_TUPLE:
                inside.memo = self.new_memo()  # two places share it from now on
        return True

    def rejoin(self) -> None:
        """Make one again of copies that hold the same as what they were copied from: the innermost first."""
        joined = _Joined(self._before, self._copies)
        for original, copy in reversed(self._copies):
            joined.try_to(original, copy)
        if joined.instead:
            self._root[0] = joined.known(self._root[0])
            for node in [*self.nodes()]:
                joined.put_into(node)
            self.rebuilt()

    def new_memo(self) -> int:
        """Return a memo index that no node has yet."""
        self._rebuilt = True
        self.pickle.next_memo += 1
        return self.pickle.next_memo - 1


class _Joined:
    """Which nodes are to be put in the place of others, because they were one and are the same."""

    def __init__(self, before: list[PickleNode], copies: Sequence[tuple[PickleNode, PickleNode]]) -> None:
        self.instead: dict[int, PickleNode] = {}
        self._old = {id(node) for node in before}
        self._origin: dict[int, int] = {}  # of a copy: the id of what was in the file
        for original, copy in copies:
            self._origin[id(copy)] = self._origin.get(id(original), id(original))

    def try_to(self, original: Made | Tuple, copy: Made | Tuple) -> None:
        """Put one in the place of the other where they hold the same."""
        kept = self.known(original)
        if kept is not copy and self._same(kept, copy):
            self.instead[id(copy)] = kept

    def known(self, value: Value) -> Any:
        """Return the value, or what is in its place."""
        return self.instead.get(id(value), value) if isinstance(value, PickleNode) else value

    def put_into(self, node: PickleNode) -> None:
        """Put nodes in the place of those directly in this one."""
        if isinstance(node, Made) and node.folded is not None:
            return  # a tensor that was never opened
        held: list[list[Value]] = []
        if isinstance(node, (Made, Tuple)):
            held.append(node.items)
        if isinstance(node, Made):
            held += [step.payload for step in node.steps or ()]
        if isinstance(node, Popped):
            held.append(node.discarded)
            node.result = self.known(node.result)
        if isinstance(node, PersistentId):
            node.id = self.known(node.id)
        for values in held:
            values[:] = [self.known(value) for value in values]

    def _same(self, one: Value, other: Value) -> bool:
        one, other = self.known(one), self.known(other)
        if one is other:
            return True
        if type(one) is not type(other):
            return False
        if isinstance(one, Tuple) and isinstance(other, Tuple):
            return one.op == other.op and self._all_same(one.items, other.items)
        if isinstance(one, Made) and isinstance(other, Made):
            return self._was_one(one, other) and self._alike(one, other)
        if isinstance(one, PersistentId) and isinstance(other, PersistentId):
            return one.op == other.op and self._same(one.id, other.id)
        if isinstance(one, String) and isinstance(other, String):
            return one.op == other.op and one.value == other.value
        if isinstance(one, Global) and isinstance(other, Global):
            return one.full == other.full
        if isinstance(one, Constant) and isinstance(other, Constant):
            return repr(one.value) == repr(other.value)
        # unlike ==, NaN is itself, and 0.0 is not -0.0
        return not isinstance(one, PickleNode) and repr(one) == repr(other)

    def _was_one(self, one: Made, other: Made) -> bool:
        """Return whether both are copies of one thing, or both came with the edits.

        Of those in the file none becomes one.
        """
        origins = [self._origin.get(id(node), id(node)) for node in (one, other)]
        return origins[0] == origins[1] or not any(each in self._old for each in origins)

    def _alike(self, one: Made, other: Made) -> bool:
        mine, its = one.steps or [], other.steps or []
        if one.op != other.op or len(mine) != len(its) or not self._all_same(one.items, other.items):
            return False
        return all(
            (a.op, a.late) == (b.op, b.late) and self._all_same(a.payload, b.payload)
            for a, b in zip(mine, its, strict=True)
        )

    def _all_same(self, some: list[Value], others: list[Value]) -> bool:
        return len(some) == len(others) and all(map(self._same, some, others))


def _copied(node: Made | Tuple) -> Made | Tuple:
    """Return a copy that holds the same values.

    What was done to the original, in one place or later, is done at once.
    """
    if isinstance(node, Tuple):
        return Tuple(node.op, list(node.items))
    copy = Made(node.op, list(node.items), NO_MEMO)
    steps = [Mutation(step.op, list(step.payload)) for step in node.steps or () if step.payload]
    copy.steps = steps or None
    return copy


def _last(found: Children, path: KeyPath) -> Child:
    """Return the child at the end of ``path``, of a key that repeats the one that counts."""
    if path[-1] not in found:
        raise RefusedError(f"There is nothing at {show_path(path)} to change.")
    return found[path[-1]][-1]


# ---- one walk over a whole graph that tells how often each node is used, and which contain themselves


# nodes that hold no others
_LEAVES = frozenset({String, Verbatim, Constant, Extension})


@noun(frozen=False)
class Scan:
    """``nodes`` are all nodes that hold others, parents before children, in stream order; without folded tensors.

    ``counts`` says from how many places the graph leads to a node, not counting places inside the node itself;
    ``looping`` has those that such places lead back to; ``folded`` says that tensors were not opened for it. Nodes are
    compared by identity.
    """

    folded: bool

    nodes: list[PickleNode] = field(default_factory=list)
    counts: dict[PickleNode, int] = field(default_factory=dict)
    looping: set[PickleNode] = field(default_factory=set)


def scan(root: Value, folded: bool) -> Scan:
    """Walk the graph below ``root`` once, without recursion."""
    found = Scan(folded)
    within = values_inside_folded if folded else values_inside
    counts, nodes = found.counts, found.nodes
    held = _Held()
    inside: set[int] = set()
    # integers on the stack are ids of nodes that are left there; those of the file never get onto it
    stack: list[Union[PickleNode, int]] = [root] if isinstance(root, PickleNode) else []
    while stack:
        node = stack.pop()
        if isinstance(node, int):
            inside.discard(node)
            continue
        if id(node) in inside:
            found.looping.add(node)
        elif node in counts:
            counts[node] += 1
        else:
            counts[node] = 1
            nodes.append(node)
            deeper = held.rest(within(node), folded)
            if deeper:
                inside.add(id(node))
                stack.append(id(node))
                deeper.reverse()
                stack += deeper
    held.count(counts)
    return found


class _Held:
    """What is met on the way and leads no deeper: it is counted at the end, all at once."""

    def __init__(self) -> None:
        self._leaves: list[PickleNode] = []
        self._tensors: list[Made] = []
        self._forms: list[Form] = []  # of the tensors
        self._plain: dict[Form, bool] = {}  # whether tensors of a form share nothing but nodes which hold no others

    def rest(self, values: list[Value], folded: bool) -> list[PickleNode]:
        """Return the nodes among values that hold others.

        Unless it is so asked, tensors do, too, that are ``folded``.
        """
        leaves, tensors, forms, plain = self._leaves, self._tensors, self._forms, self._plain
        deeper: list[PickleNode] = []
        for value in values:
            kind = type(value)
            if kind in _LEAVES:
                leaves.append(value)  # type: ignore[arg-type]  # kind says what it is
                continue
            if folded and kind is Made and (tensor := value.folded) is not None and not value.steps:  # type: ignore[union-attr]  # kind says what it is
                form = tensor.form
                alike = plain.get(form)
                if alike is None:
                    alike = plain[form] = _shares_leaves(value)  # type: ignore[arg-type]  # kind says what it is
                if alike and tensor.held is None:
                    tensors.append(value)  # type: ignore[arg-type]  # kind says what it is
                    forms.append(form)
                    continue
            if isinstance(value, PickleNode):
                deeper.append(value)
        return deeper

    def count(self, counts: dict[PickleNode, int]) -> None:
        """Add the places that lead to each, and from each tensor once to what it shares with others."""
        leaves, tensors, forms = self._leaves, self._tensors, self._forms
        found: dict[PickleNode, int] = dict.fromkeys([*leaves, *tensors], 1)
        if len(found) < len(leaves) + len(tensors):  # else no place leads to what another one does
            found = Counter([*leaves, *tensors])
        if len(set(tensors)) < len(tensors) or not counts.keys().isdisjoint(tensors):
            forms = list({each: form for each, form in zip(tensors, forms, strict=True) if each not in counts}.values())
        for form, many in Counter(forms).items():
            for each in (form.callee, *form.fetched):
                if isinstance(each, PickleNode):
                    found[each] = found.get(each, 0) + many
        for node in counts.keys() & found.keys():
            found[node] += counts[node]
        counts.update(found)


def _shares_leaves(node: Made) -> bool:
    """Return whether a folded tensor and others share nothing but texts, and classes and functions by one name."""
    folded = folded_in(node)
    if folded is None:
        return False
    names = [each for each in (folded.form.callee, *folded.form.fetched) if isinstance(each, Global)]
    return all(each.parts is None for each in names)


# ---- memo entries numbered anew in the order in which they are written, as Python's pickler numbers them


@noun(frozen=False)
class _Store:
    """Here the node is complete and goes into the memo."""

    node: PickleNode


def renumber_memo(pickle: Pickle) -> None:
    """Give every node that has a memo entry the number that a pickler would: 0, 1, 2 … in the order of the stream.

    After values were taken out or added the numbers have gaps or are out of order, which no pickler leaves behind.
    """
    count = 0
    seen: set[int] = set()
    stack: list[Union[Value, _Store]] = [pickle.root]
    while stack:
        task = stack.pop()
        if isinstance(task, _Store):
            task.node.memo = count
            count += 1
        elif isinstance(task, PickleNode) and not isinstance(task, Constant) and id(task) not in seen:
            seen.add(id(task))
            stack.extend(reversed(_tasks(task)))
        elif isinstance(task, Constant) and task.memo != NO_MEMO and id(task) not in seen:
            seen.add(id(task))
            stack.append(_Store(task))
    pickle.next_memo = count


def _tasks(node: PickleNode) -> list[Union[Value, _Store]]:
    """Return what is written for a node, in order."""
    if isinstance(node, Revisit):
        return [node.result, *[value for step in node.steps for value in step.payload]]
    if isinstance(node, Popped):
        return [*node.discarded, node.result]
    store: list[Union[Value, _Store]] = [] if node.memo == NO_MEMO else [_Store(node)]
    if isinstance(node, Made):
        return _made(node, store)
    if isinstance(node, Tuple):
        return [*node.items, *store]
    if isinstance(node, PersistentId):
        return [node.id, *store]
    if isinstance(node, Global) and node.parts is not None:
        return [*node.parts, *store]
    return store


def _made(node: Made, store: list[Union[Value, _Store]]) -> list[Union[Value, _Store]]:
    steps = [step for step in node.steps or () if not step.late]
    late = any(step.op == op.PUT for step in steps)
    tasks: list[Union[Value, _Store]] = [*node.items, *([] if late else store)]
    for step in steps:
        tasks += store if step.op == op.PUT else step.payload
    return tasks
