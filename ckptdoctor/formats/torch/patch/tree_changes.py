"""Finds what differs between the contents of a file and those of its copy, told by place in the file.

Both are walked side by side. A node that is the same object in both has not changed and is not looked into; one that
edits made knows by its ``origin`` which node of the file it was, wherever it is now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from ckptdoctor.checkpoint import (
    Cycle,
    KeyPath,
    Mapping,
    Node,
    Opaque,
    Part,
    Sequence,
    Special,
    Tensor,
    show_path,
    walk,
)
from ckptdoctor.checkpoint.changed_trees import source_of
from ckptdoctor.checkpoint.tensor import same_facts
from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import noun


@noun
class Kept:
    """An entry of the file, perhaps under another key."""

    was: Part
    now: Part


@noun
class Entered:
    """An entry that is not of this dict: its value is new, made of one of its tensors, or comes from elsewhere."""

    part: Part
    node: Node


@noun
class Entries:
    """The dict or list at ``path`` of the file gets these entries in this order; of those it had, the others go."""

    path: KeyPath
    before: tuple[Part, ...]
    after: tuple[Union[Kept, Entered], ...]


@noun
class Renamed:
    """The dict at ``path`` keeps its entries in their places; what is called otherwise ``after`` is a text then."""

    path: KeyPath
    before: tuple[Part, ...]
    after: tuple[Part, ...]

    @property
    def entries(self) -> Entries:
        """The same, told entry by entry."""
        return Entries(self.path, self.before, tuple(map(Kept, self.before, self.after)))


@noun
class Exchanged:
    """There is another node at ``path``: a new one, or one that the file has elsewhere."""

    path: KeyPath
    node: Node


@noun
class Retargeted:
    """The tensor ``before`` at ``path``, or in the one that wraps it there, becomes ``after``."""

    path: KeyPath
    before: Tensor
    after: Tensor


Change = Union[Entries, Renamed, Exchanged, Retargeted]

_Entry = tuple[Part, Node]


class Places:
    """Where the nodes of a file are, by identity; computed when it is first asked for."""

    def __init__(self, tree: Node) -> None:
        self._tree = tree
        self._known: dict[int, tuple[KeyPath, Node]] | None = None

    def of(self, node: Node) -> tuple[KeyPath, Node] | None:
        """Return the place of the node that this one was made of, and that node, or None for what is new."""
        if not isinstance(node, (Mapping, Sequence, Opaque, Tensor)):
            return None
        if self._known is None:
            self._known = {}
            for path, each in walk(self._tree):
                for one in _with_parts(each) or (each,):
                    self._known.setdefault(id(source_of(one)), (path, one))
        return self._known.get(id(source_of(node)))


def tree_changes(before: Node, after: Node, places: Places) -> Iterator[Change]:
    """Yield every difference.

    What is moved as a whole is told where it goes, and what changed inside it where it was.
    """
    stack: list[tuple[KeyPath, Node, Node]] = [((), before, after)]
    while stack:
        path, old, new = stack.pop()
        if new is old or isinstance(new, Cycle) or (_plain(new) and _same(old, new)):
            continue
        source = source_of(new)
        if isinstance(new, Tensor):
            mine = next((each for each in _with_parts(old) if source_of(each) is source), None)
            if mine is not None:
                yield Retargeted(path, mine, new)
                continue
        elif _alike(old, new) and source is source_of(old):
            yield from _inside(path, old, new, stack)
            continue
        yield Exchanged(path, new)
        there = places.of(new)
        if there is not None and new is not there[1]:
            stack.append((*there, new))


def _with_parts(node: Node) -> tuple[Tensor, ...]:
    return (node, *node.parts) if isinstance(node, Tensor) else ()


def _plain(node: Node) -> bool:
    return not isinstance(node, (Mapping, Sequence, Opaque, Tensor))


def _same(old: Node, new: Node) -> bool:
    """Return whether two values are one, bit for bit: ``repr`` tells 0.0 from -0.0, and True from 1."""
    return type(old) is type(new) and (old == new or old != old) and repr(old) == repr(new)


def _alike(old: Node, new: Node) -> bool:
    """Return whether both are containers of one kind."""
    if isinstance(old, (Mapping, Sequence)) and isinstance(new, (Mapping, Sequence)):
        return type(old) is type(new) and old.kind == new.kind
    return isinstance(old, Opaque) and isinstance(new, Opaque) and old.class_name == new.class_name


def _inside(path: KeyPath, old: Node, new: Node, stack: list[tuple[KeyPath, Node, Node]]) -> Iterator[Change]:
    """Yield what is different directly in a container; what may be different deeper goes on the stack."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        if _in_place(old.entries, new.entries):
            yield from _renamed_entries(path, old.entries, new.entries, stack)
        else:
            yield from _entries(path, old.entries, new.entries, stack)
        if old.attributes is not None and new.attributes is not None:
            yield from _entries(path, _dotted(old.attributes), _dotted(new.attributes), stack)
    elif isinstance(old, Sequence) and isinstance(new, Sequence):
        yield from _items(path, old.items, new.items, stack)
    elif isinstance(old, Opaque) and isinstance(new, Opaque):
        for index, (mine, its) in enumerate(zip(old.arguments, new.arguments, strict=True)):
            stack.append(((*path, Special(f"({index})")), mine, its))
        if isinstance(old.state, Mapping) and isinstance(new.state, Mapping):
            yield from _inside(path, old.state, new.state, stack)
        else:
            stack.append(((*path, Special(".state")), old.state, new.state))
        yield from _items(path, old.items, new.items, stack)
        yield from _entries(path, old.entries, new.entries, stack)


def _in_place(old: tuple[_Entry, ...], new: tuple[_Entry, ...]) -> bool:
    """Return whether each entry is the one that was in its place before, perhaps under another name."""
    if len(old) != len(new):
        return False
    sources: set[int] = set()
    count = 0
    for (was, before), (now, value) in zip(old, new):  # noqa: B905  the lengths are equal
        if type(value) is Tensor and type(before) is Tensor and not value.parts:
            source = before if before.origin is None else before.origin
            if value is not before and value.origin is not before and value.origin is not source:
                return False
            sources.add(id(source))
            count += 1
        elif value is not before or not _plain(value) or was != now or type(was) is not type(now):
            return False
        if now is not was and type(now) is not str and (was != now or type(was) is not type(now)):
            return False
    return len(sources) == count


def _renamed_entries(
    path: KeyPath, old: tuple[_Entry, ...], new: tuple[_Entry, ...], stack: list[tuple[KeyPath, Node, Node]]
) -> Iterator[Change]:
    for (was, before), (_, value) in zip(old, new, strict=True):
        if value is not before and not _only_moved(value, before):
            stack.append(((*path, was), before, value))
    names = tuple([was for was, _ in old]), tuple([now for now, _ in new])
    if names[0] != names[1] or any(type(was) is not type(now) for was, now in zip(*names, strict=True)):
        yield Renamed(path, *names)


def _only_moved(value: Node, before: Node) -> bool:
    """Return whether a tensor is what it was, except for its path and where it comes from."""
    if not isinstance(value, Tensor) or not isinstance(before, Tensor) or not same_facts(value, before):
        return False
    return (value.storage is before.storage or value.storage == before.storage) and value.chunks == before.chunks


def _dotted(attributes: Mapping) -> tuple[_Entry, ...]:
    return tuple([(Special(f".{part}"), value) for part, value in attributes.entries])


def _entries(
    path: KeyPath, old: tuple[_Entry, ...], new: tuple[_Entry, ...], stack: list[tuple[KeyPath, Node, Node]]
) -> Iterator[Change]:
    found = _matched(old, new)
    after: list[Union[Kept, Entered]] = []
    for index, (part, value) in zip(found, new, strict=True):
        if index is None:
            after.append(Entered(part, value))
        else:
            was, before = old[index]
            after.append(Kept(was, part))
            if value is not before:
                stack.append(((*path, was), before, value))
    if len(old) != len(new) or found != list(range(len(old))) or any(_renamed(each) for each in after):
        yield Entries(path, tuple([part for part, _ in old]), tuple(after))


def _renamed(entry: Union[Kept, Entered]) -> bool:
    return isinstance(entry, Kept) and (entry.was != entry.now or type(entry.was) is not type(entry.now))


def _matched(old: tuple[_Entry, ...], new: tuple[_Entry, ...]) -> list[int | None]:
    """Return for each new entry the old one that it is: the one whose value it has, else the one of its name.

    Plain values have no identity: of those that lost their name, equal ones are taken in their order.
    """
    by_value: dict[int, int] = {}
    by_part: dict[tuple[type, Part], int] = {}
    for index, (part, value) in enumerate(old):
        by_part[type(part), part] = index
        if not _plain(value):
            by_value[id(source_of(value))] = index
            for inner in value.parts if isinstance(value, Tensor) else ():
                by_value.setdefault(id(source_of(inner)), index)
    taken: set[int] = set()
    found: list[int | None] = []
    for _, value in new:
        mine = None if _plain(value) else by_value.get(id(source_of(value)))
        found.append(mine if mine not in taken else None)
        taken.update(() if mine is None else (mine,))
    for at, (part, _) in enumerate(new):
        named = by_part.get((type(part), part))
        if found[at] is None and named is not None and named not in taken:
            found[at] = named
            taken.add(named)
    if None in found:
        left: dict[tuple[type, str], list[int]] = {}
        for index in reversed(range(len(old))):
            if index not in taken and _plain(old[index][1]):
                left.setdefault((type(old[index][1]), repr(old[index][1])), []).append(index)
        for at, (_, value) in enumerate(new):
            alike = left.get((type(value), repr(value))) if found[at] is None and _plain(value) else None
            if alike:
                found[at] = alike.pop()
    return found


def _items(
    path: KeyPath, old: tuple[Node, ...], new: tuple[Node, ...], stack: list[tuple[KeyPath, Node, Node]]
) -> Iterator[Change]:
    """Items are matched by place where there are as many; else those that are left, in their order."""
    if len(old) == len(new):
        stack += [((*path, index), mine, its) for index, (mine, its) in enumerate(zip(old, new, strict=True))]
        return
    kept: list[tuple[int, Node]] = []
    at = 0
    for value in new:
        source = source_of(value)
        while at < len(old) and old[at] is not source and not (_plain(value) and _same(old[at], value)):
            at += 1
        kept.append((at, value))
        at += 1
    if at > len(old):
        raise RefusedError(f"The items of {show_path(path)} cannot be reordered.")
    stack += [((*path, index), old[index], value) for index, value in kept if value is not old[index]]
    yield Entries(path, tuple(range(len(old))), tuple([Kept(index, index) for index, _ in kept]))
