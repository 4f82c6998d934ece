"""The entries of a dict, or the items of a list, are set: new names, another order, what comes and what goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ckptdoctor.checkpoint import KeyPath, Part, show_path
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch.patch.new_nodes import NewText, from_plain, plain_key
from ckptdoctor.formats.torch.patch.tree_changes import Entries, Kept
from ckptdoctor.formats.torch.read.objects import Kind, object_shape
from ckptdoctor.formats.torch.read.slots import Child, Children, Slot
from ckptdoctor.formats.torch.read.values import bare
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, Mutation, Pickle, Value


def new_names(change: Entries, found: Children, pickle: Pickle) -> Iterator[NewText]:
    """Yield the names of entries that stay; numbers are put at once, texts are exchanged with all others."""
    for entry in change.after:
        if not isinstance(entry, Kept) or entry.was == entry.now:
            continue
        for child in found[entry.was]:
            if child.key is None:
                raise RefusedError(f"{show_path((*change.path, entry.was))} has no key to change.")
            if isinstance(entry.now, str):
                yield NewText(child.key.holder, child.key.index, entry.now)
            else:
                child.key.put(from_plain(pickle, plain_key(entry.now)))


def put_in_order(change: Entries, found: Children) -> None:
    """Let entries that stay change places among themselves."""
    kept, places = _kept(change)
    moved = [(old, new) for old, new in zip(places, kept, strict=True) if old != new]
    entries = {part: _single(change.path, part, found) for part, _ in moved}
    held = {part: (key.value, child.value.value) for part, (key, child) in entries.items()}
    for old, new in moved:
        key, child = entries[old]
        key_value, value = held[new]
        key.put(key_value)
        child.value.put(value)


def _kept(change: Entries) -> tuple[list[Part], list[Part]]:
    """Return the entries that stay, in their new order and in the one that they had, by the names that they had."""
    number = {part: index for index, part in enumerate(change.before)}
    kept = [entry.was for entry in change.after if isinstance(entry, Kept)]
    return kept, sorted(kept, key=number.__getitem__)


def _single(path: KeyPath, part: Part, found: Children) -> tuple[Slot, Child]:
    """Return the entry of a key. Raises RefusedError where it was written more than once, or in an unusual way."""
    each = found.get(part, [])
    if len(each) != 1 or each[0].key is None:
        raise RefusedError(f"{show_path((*path, part))} was written more than once: its place cannot change.")
    return each[0].key, each[0]


def set_entries(change: Entries, found: Children, entered: Sequence[tuple[Value, Value] | None], node: Value) -> None:
    """Put in what comes, and take out what goes; ``entered`` are key and value of what comes, None for what stays."""
    _, places = _kept(change)
    stays = set(places)
    gone = [part for part in change.before if part not in stays]
    lists = _Lists()
    for part in gone:
        for child in _droppable(change.path, part, found):
            lists.take_out(child)
    waiting: list[Value] = []
    last: Part | None = None
    following = iter(places)
    for each in entered:
        if each is not None:
            waiting += each
            continue
        part = next(following)
        if waiting:
            _insert(lists, change.path, found, last, part, waiting)
            waiting = []
        last = part
    if waiting and not places and not gone:
        _into_empty(node, waiting, change.path)
    elif waiting:
        _insert(lists, change.path, found, last, gone[0] if gone else None, waiting)
    lists.write(_owners(node))


def _insert(
    lists: _Lists, path: KeyPath, found: Children, last: Part | None, following: Part | None, values: list[Value]
) -> None:
    """Insert it after the entry that precedes it where there is one."""
    part = following if last is None else last
    assert part is not None
    each = found.get(part, [])
    if len(each) != 1 or each[0].first is None or each[0].width != 2:
        where = show_path((*path, part))
        raise RefusedError(f"The entry {where} is written in an unusual way, so it cannot be changed.")
    lists.put_in(each[0].first, 0 if last is None else 2, values)


def _droppable(path: KeyPath, part: Part, found: Children) -> list[Child]:
    each = found.get(part)
    if each is None:
        raise RefusedError(f"There is nothing at {show_path((*path, part))} to drop.")
    if any(child.first is None for child in each):
        raise RefusedError(f"{show_path((*path, part))} belongs to a tuple or a call, so it cannot be dropped alone.")
    return each


class _Lists:
    """The lists of a graph into which values are put, and out of which some are taken, at once."""

    def __init__(self) -> None:
        self._holders: dict[int, list[Value]] = {}
        self._before: dict[int, dict[int, list[Value]]] = {}
        self._out: dict[int, set[int]] = {}

    def take_out(self, child: Child) -> None:
        """Take out what makes up the child."""
        assert child.first is not None
        holder, index = child.first.holder, child.first.index
        self._holders[id(holder)] = holder
        self._out.setdefault(id(holder), set()).update(range(index, index + child.width))

    def put_in(self, first: Slot, behind: int, values: list[Value]) -> None:
        """Put these values so many places behind a slot."""
        self._holders[id(first.holder)] = first.holder
        before = self._before.setdefault(id(first.holder), {})
        before.setdefault(first.index + behind, []).extend(values)

    def write(self, owners: Sequence[Made]) -> None:
        """Change the lists. Steps that set no entry any more go, and one that set one may have to set several."""
        for number, holder in self._holders.items():
            before, out = self._before.get(number, {}), self._out.get(number, set())
            holder[:] = list(_woven(list(holder), before, out))
        for owner in {id(each): each for each in owners}.values():
            for step in owner.steps or ():
                if step.op == op.SETITEM and id(step.payload) in self._holders and len(step.payload) > 2:
                    step.op = op.SETITEMS
            kept = [step for step in owner.steps or () if step.payload or id(step.payload) not in self._holders]
            owner.steps = kept or None


def _woven(old: list[Value], before: Mapping[int, list[Value]], out: set[int]) -> Iterator[Value]:
    for index in range(len(old) + 1):
        yield from before.get(index, ())
        if index < len(old) and index not in out:
            yield old[index]


def _into_empty(node: Value, values: list[Value], path: KeyPath) -> None:
    node = bare(node)
    if not isinstance(node, Made) or object_shape(node).kind is not Kind.MAPPING:
        raise RefusedError(f"{show_path(path)} is not a dict, so it has no keys to change.")
    filled = object_shape(node).filled
    mapping = filled if isinstance(filled, Made) else node
    mapping.steps = [Mutation(op.SETITEMS, values), *(mapping.steps or [])]


def _owners(node: Value) -> list[Made]:
    """Return the objects whose steps hold the children of a node.

    It is the node, and what it was filled from or given as state.
    """
    node = bare(node)
    if not isinstance(node, Made):
        return []
    filled = object_shape(node).filled
    inside = [bare(value) for step in node.steps or () for value in step.payload[:1] if len(step.payload) == 1]
    return [node, *[each for each in (filled, *inside) if isinstance(each, Made) and each is not node]]
