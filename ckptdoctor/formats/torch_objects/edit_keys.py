"""Edits of keys and values: rename, drop, take a root, replace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ckptdoctor.checkpoint import KeyPath, Part, Special, show_part, show_path
from ckptdoctor.edits import Drop, Rename, RenameModules, Replace, TakeRoot
from ckptdoctor.edits.renaming import named_after, renamed_modules
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_objects.graph_edit import GraphEdit
from ckptdoctor.formats.torch_objects.plain_values import from_plain
from ckptdoctor.formats.torch_objects.shapes import Kind, shape_of
from ckptdoctor.formats.torch_objects.slots import Child, Children, Slot, children
from ckptdoctor.formats.torch_objects.texts import NewText, replace_texts
from ckptdoctor.formats.torch_objects.values import bare, text
from ckptdoctor.pickles.graph import Made, Text, Value

_METADATA = Special("._metadata")


def rename(graph: GraphEdit, edit: Rename) -> None:
    """New keys for a state dict; its ``_metadata`` and the names of parameters in optimizers follow.

    Raises RefusedError for keys that are not there, and when two keys would get one name.
    """
    names = dict(edit.pairs)
    graph.mapping(edit.state_dict)
    found = graph.children(edit.state_dict)
    changes = _new_keys(found, names, edit.state_dict)
    old_keys = [part for part, each in found.items() if isinstance(part, str) and each[-1].key is not None]
    metadata = found.get(_METADATA)
    if metadata is not None and _is_mapping(metadata[-1].value.value):
        inside = graph.children((*edit.state_dict, _METADATA))
        prefixes = [part for part in inside if isinstance(part, str)]
        moves = renamed_modules(prefixes, {key: names.get(key, key) for key in old_keys})
        _rename_modules(graph, (*edit.state_dict, _METADATA), moves, changes)
    changes += _in_optimizers(graph, names, frozenset(old_keys))
    replace_texts(graph, changes)


def _is_mapping(value: Value) -> bool:
    value = bare(value)
    return isinstance(value, Made) and shape_of(value).kind is Kind.MAPPING


def _new_keys(found: Children, names: Mapping[str, str], path: KeyPath) -> list[NewText]:
    """The change of each key. Raises RefusedError for absent keys and collisions."""
    owners: dict[Part, Part] = {}
    for old in names:
        if old not in found:
            raise RefusedError(f"There is no key “{old}” in {show_path(path)} to rename.")
    for part, each in found.items():
        if each[-1].key is None:
            continue  # an attribute
        new = names.get(part, part) if isinstance(part, str) else part
        rival = owners.setdefault(new, part)
        if rival is not part:
            raise _collision(part, rival, new, path)
    return [
        NewText(each.key, names[part])
        for part, each_of_key in found.items()
        if isinstance(part, str) and part in names
        for each in each_of_key
        if each.key is not None and names[part] != part
    ]


def _collision(one: Part, other: Part, new: Part, path: KeyPath) -> RefusedError:
    moving, staying = (one, other) if other == new else (other, one)
    reason = "is already there" if staying == new else f"is what {show_part(staying)} becomes, too"
    return RefusedError(
        f"{show_part(moving)} → {show_part(new)} is refused in {show_path(path)}: {show_part(new)} {reason}; "
        "drop or rename one of them."
    )


def _rename_modules(graph: GraphEdit, path: KeyPath, moves: Mapping[str, str | None], changes: list[NewText]) -> None:
    """Prefixes of the ``_metadata`` at ``path`` move, or go where their new name is None."""
    metadata = graph.mapping(path)
    gone = {prefix for prefix, new in moves.items() if new is None}
    if gone:
        graph.remove(_owners(metadata), [child for prefix in gone for child in children(metadata)[prefix]])
    wanted = {prefix: new for prefix, new in moves.items() if new is not None}
    changes += _new_keys(children(metadata), wanted, path)


def rename_modules(graph: GraphEdit, edit: RenameModules) -> None:
    """New prefixes in ``_metadata``. Raises RefusedError where there is none."""
    found = graph.children(edit.state_dict)
    if _METADATA not in found or not _is_mapping(found[_METADATA][-1].value.value):
        raise RefusedError(f"{show_path(edit.state_dict)} has no _metadata whose prefixes could be renamed.")
    changes: list[NewText] = []
    _rename_modules(graph, (*edit.state_dict, _METADATA), dict(edit.pairs), changes)
    replace_texts(graph, changes)


def _in_optimizers(graph: GraphEdit, names: Mapping[str, str], keys: frozenset[str]) -> Iterator[NewText]:
    """The names of renamed parameters in every optimizer: what groups note, and what stands in place of numbers."""
    for node in graph.nodes():
        if not isinstance(node, Made) or not node.steps:
            continue
        shape = shape_of(node)
        found = shape.found
        if shape.kind is not Kind.MAPPING or not {"state", "param_groups"} <= set(map(text, found.keys)):
            continue
        groups = [group[-1].value.value for group in children(children(node)["param_groups"][-1].value.value).values()]
        yield from _renamed(_listed(groups, "param_names"), names)
        state = children(node)["state"][-1].value.value
        inside = (
            [each for each_of_key in children(state).values() for each in each_of_key] if _is_mapping(state) else []
        )
        places = [each.key for each in inside if each.key is not None] + _listed(groups, "params")
        if named_after([_text(slot) for slot in places], keys):
            yield from _renamed(places, names)


def _listed(groups: Iterable[Value], which: str) -> list[Slot]:
    """The places of what is listed under ``which`` in each parameter group."""
    found = [children(group).get(which) for group in groups]
    return [item[-1].value for each in found if each for item in children(each[-1].value.value).values()]


def _renamed(places: Iterable[Slot], names: Mapping[str, str]) -> Iterator[NewText]:
    for slot in places:
        old = _text(slot)
        if old is not None and names.get(old, old) != old:
            yield NewText(slot, names[old])


def _text(slot: Slot) -> str | None:
    value = bare(slot.value)
    return value.value if isinstance(value, Text) and isinstance(value.value, str) else None


def drop(graph: GraphEdit, edit: Drop) -> None:
    """Values go, with their keys. Raises RefusedError for the root, parts of calls, and what is not there."""
    by_parent: dict[KeyPath, set[Part]] = {}
    for path in edit.paths:
        if not path:
            raise RefusedError("The whole contents cannot be dropped.")
        by_parent.setdefault(path[:-1], set()).add(path[-1])
    for parent in by_parent:
        graph.children(parent)  # everything is copied that must be before any place is remembered
    owners: list[Made] = []
    dropped: list[Child] = []
    for parent, parts in by_parent.items():
        node = graph.node(parent)
        found = graph.children(parent)
        for part in parts:
            dropped += _droppable(found, part, parent)
        owners += _owners(node)
    graph.remove(owners, dropped)


def _droppable(found: Children, part: Part, parent: KeyPath) -> list[Child]:
    each = found.get(part)
    if each is None:
        raise RefusedError(f"There is nothing at {show_path((*parent, part))} to drop.")
    if any(child.first is None for child in each):
        raise RefusedError(f"{show_path((*parent, part))} belongs to a tuple or a call, and cannot be dropped alone.")
    return each


def _owners(node: Value) -> list[Made]:
    """The objects whose steps hold the children of a node: the node, and what it was filled from or given as state."""
    node = bare(node)
    if not isinstance(node, Made):
        return []
    filled = shape_of(node).filled
    inside = [bare(value) for step in node.steps or () for value in step.payload[:1] if len(step.payload) == 1]
    return [node, *[each for each in (filled, *inside) if isinstance(each, Made) and each is not node]]


def take_root(graph: GraphEdit, edit: TakeRoot) -> None:
    """One value becomes everything. Raises RefusedError when there is none at the path."""
    slot = graph.slot(edit.path)
    graph.root.put(slot.value)
    graph.rebuilt()


def replace(graph: GraphEdit, edit: Replace) -> None:
    """A value becomes plain data. Raises RefusedError when there is none at the path."""
    graph.slot(edit.path).put(from_plain(graph.pickle, edit.value))
    graph.rebuilt()
