"""Compares what is next to the tensors: epochs, learning rates, arguments, versions of modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from ckptdoctor.checkpoint import (
    Checkpoint,
    Cycle,
    Elided,
    KeyPath,
    Mapping,
    Named,
    Node,
    Opaque,
    Part,
    Sequence,
    Special,
    Tensor,
    at,
    children,
    show_path,
)
from ckptdoctor.differences import ABSENT, Absent, Other, Side
from ckptdoctor.diffing.pairing import Counterparts

_VERSIONS = Special("._metadata")  # what a state dict keeps of its modules, which no other container has room for
_Held = Union[Node, Absent]
_Places = frozenset[KeyPath]


def other_differences(a: Side, b: Side, matched: Counterparts, renamed: bool) -> Iterator[Other]:
    """Yield plain values and objects that only one has or that differ, in A's order; state dicts by counterpart.

    ``renamed``: modules have other names, so that there is no comparing their versions.
    """
    places: tuple[_Places, _Places] = (
        frozenset([one.path for one, _ in matched.pairs]),
        frozenset([other.path for _, other in matched.pairs]),
    )
    yield from _below(_start(a, places[0]), _start(b, places[1]), a.root, b.root, places, renamed)
    for one, other in matched.pairs:
        mine, its = at(a.checkpoint.tree, one.path), at(b.checkpoint.tree, other.path)
        yield from _below(mine, its, one.path, other.path, places, renamed)
    yield from _metadata(a.checkpoint, b.checkpoint)


def _start(side: Side, places: _Places) -> Node:
    """Return the part that is compared; nothing where it is a state dict with a counterpart, which has its own turn."""
    return Mapping("dict", ()) if side.root in places else at(side.checkpoint.tree, side.root)


def _below(
    one: _Held, other: _Held, path_a: KeyPath, path_b: KeyPath, places: tuple[_Places, _Places], renamed: bool
) -> Iterator[Other]:
    """Yield what differs at and below two places, without state dicts further down that have counterparts."""
    stack: list[tuple[_Held, _Held, KeyPath, KeyPath]] = [(one, other, path_a, path_b)]
    begun = False
    while stack:
        one, other, here, there = stack.pop()
        if begun:
            one = ABSENT if here in places[0] else one
            other = ABSENT if there in places[1] else other
        begun = True
        if isinstance(one, Absent) or isinstance(other, Absent):
            if _plain(one, here, places[0]) or _plain(other, there, places[1]):
                yield Other(show_path(there if isinstance(one, Absent) else here), one, other)
        elif _compound(one) and type(one) is type(other):
            if isinstance(one, Opaque) and isinstance(other, Opaque) and one.class_name != other.class_name:
                yield Other(show_path(here), Named(one.class_name), Named(other.class_name))
            stack.extend(reversed(_children(one, other, here, there, renamed)))
        elif not isinstance(one, Tensor) and not isinstance(other, Tensor) and not _equal(one, other):
            yield Other(show_path(here), one, other)


def _children(
    one: Node, other: Node, here: KeyPath, there: KeyPath, renamed: bool
) -> list[tuple[_Held, _Held, KeyPath, KeyPath]]:
    mine, its = _entries(one), _entries(other)
    versions = mine.pop(_VERSIONS, None), its.pop(_VERSIONS, None)
    found: list[tuple[_Held, _Held, KeyPath, KeyPath]] = [
        (child, its.get(part, ABSENT), (*here, _part(part)), (*there, _part(part)))
        for part, child in mine.items()
        if not (isinstance(child, Tensor) and isinstance(its.get(part), (Tensor, type(None))))
    ]
    found += [
        (ABSENT, child, (*here, _part(part)), (*there, _part(part)))
        for part, child in its.items()
        if part not in mine and not isinstance(child, Tensor)
    ]
    if versions[0] is not None and versions[1] is not None and not renamed:
        found.append((*versions, (*here, _VERSIONS), (*there, _VERSIONS)))
    return found


_Key = Union[tuple[str, Part], Special]


def _entries(node: Node) -> dict[_Key, Node]:
    """Return the children by the steps that lead to them; 1, True and "1" are different steps."""
    return {part if isinstance(part, Special) else (type(part).__name__, part): child for part, child in children(node)}


def _part(key: _Key) -> Part:
    return key if isinstance(key, Special) else key[1]


def _compound(node: Node) -> bool:
    """Return whether a node can have children; even without any it is not a plain value."""
    return isinstance(node, (Mapping, Sequence, Opaque))


def _plain(node: _Held, path: KeyPath, places: _Places) -> bool:
    """Return whether there is anything but tensors in it, apart from state dicts with counterparts."""
    if isinstance(node, Absent):
        return False
    stack: list[tuple[KeyPath, Node]] = [(path, node)]
    while stack:
        where, each = stack.pop()
        if isinstance(each, Tensor) or (where in places and where != path):
            continue
        if not isinstance(each, (Mapping, Sequence)):
            return True
        below = [((*where, part), child) for part, child in children(each) if part != _VERSIONS]
        if not below:
            return True
        stack.extend(below)
    return False


def _equal(one: Node, other: Node) -> bool:
    """Return whether two values are the same; NaN is itself, and 1 is neither True nor 1.0."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other)
    if isinstance(one, (Cycle, Elided)) or isinstance(other, (Cycle, Elided)):
        return type(one) is type(other)
    return type(one) is type(other) and one == other


def _metadata(a: Checkpoint, b: Checkpoint) -> Iterator[Other]:
    """Yield what differs in the ``__metadata__`` of two safetensors files."""
    if a.metadata is None or b.metadata is None:
        return
    for key in dict.fromkeys((*a.metadata, *b.metadata)):
        one, other = a.metadata.get(key, ABSENT), b.metadata.get(key, ABSENT)
        if one != other:
            yield Other(f"__metadata__/{key}", one, other)
