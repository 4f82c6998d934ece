"""Nested contents out of flat keys: the place of each in dicts and lists, as ``unflatten_state_dict`` of torch says."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ckptdoctor.checkpoint import KeyPath, Mapping, Node, NoteKind, Part, Sequence
from ckptdoctor.formats.folders.gathering import Gathering
from ckptdoctor.formats.folders.metadata import Entry

# what lies at the end of a path may be deep again: see formats.torch.read.tree
_DEEPEST = 64


def nested(
    values: Iterable[tuple[tuple[str | int, ...], Entry]],
    made: Callable[[Entry, KeyPath], Node],
    gathering: Gathering,
) -> Node:
    """The tree of all values; ``made`` turns each into its node, in the order in which they were given."""
    top: dict[Part, object] = {}
    for path, entry in values:
        if len(path) > _DEEPEST or not _put(top, path, entry):
            gathering.note(NoteKind.NOT_EXAMINED, f"{entry.key[:80]} has a place that another value has", ".metadata")
    return _node(top, (), made)


def _put(top: dict[Part, object], path: tuple[str | int, ...], entry: Entry) -> bool:
    level = top
    for step in path[:-1]:
        below = level.setdefault(step, {})
        if not isinstance(below, dict):
            return False
        level = below
    if path[-1] in level:
        return False
    level[path[-1]] = entry
    return True


def _node(level: dict[Part, object], path: KeyPath, made: Callable[[Entry, KeyPath], Node]) -> Node:
    found: list[tuple[Part, Node]] = []
    for part, value in level.items():
        below = (*path, part)
        if isinstance(value, Entry):
            found.append((part, made(value, below)))
        elif isinstance(value, dict):
            found.append((part, _node(value, below, made)))
    numbers = [part for part, _ in found if type(part) is int]
    # what was left out of a list when it was saved is None in it, as in torch; too many are no list
    if path and found and len(numbers) == len(found) and max(numbers) < 4 * len(found) + 64:
        items: list[Node] = [None] * (max(numbers) + 1)
        for part, node in found:
            if type(part) is int:
                items[part] = node
        return Sequence("list", tuple(items))
    return Mapping("dict", tuple(found))
