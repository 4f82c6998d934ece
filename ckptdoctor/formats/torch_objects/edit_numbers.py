"""Edits of a dict's entries as a whole: other numbers for them, and another order."""

from __future__ import annotations

from ckptdoctor.checkpoint import KeyPath, Part, Special, show_path
from ckptdoctor.edits import Renumber, Reorder
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_objects.graph_edit import GraphEdit
from ckptdoctor.formats.torch_objects.slots import Slot


def renumber(graph: GraphEdit, edit: Renumber) -> None:
    """Raises RefusedError for numbers that are not there, and where two entries would get one."""
    entries = _entries(graph, edit.path)
    numbers = dict(edit.pairs)
    made = [numbers.get(part, part) if type(part) is int else part for part in entries]
    if not all(type(old) is int and old in entries for old in numbers) or len(set(made)) != len(made):
        raise RefusedError(f"The entries of {show_path(edit.path)} cannot be numbered anew: two would be one.")
    for old, new in edit.pairs:
        entries[old][0].put(new)


def reorder(graph: GraphEdit, edit: Reorder) -> None:
    """Raises RefusedError unless the keys are those of the dict, each once."""
    entries = _entries(graph, edit.path)
    if len(edit.keys) != len(entries) or entries.keys() != set(edit.keys):
        raise RefusedError(f"{show_path(edit.path)} has other keys than those that are to be put in order.")
    held = {part: (key.value, value.value) for part, (key, value) in entries.items()}
    for (key, value), part in zip(entries.values(), edit.keys, strict=True):
        new_key, new_value = held[part]
        key.put(new_key)
        value.put(new_value)
    graph.rebuilt()


def _entries(graph: GraphEdit, path: KeyPath) -> dict[Part, tuple[Slot, Slot]]:
    """The slots of key and value of every entry in their order, attributes aside."""
    graph.mapping(path)
    found: dict[Part, tuple[Slot, Slot]] = {}
    for part, each in graph.children(path).items():
        if each[-1].key is None or (isinstance(part, Special) and part.text.startswith(".")):
            continue  # an attribute
        if len(each) > 1:
            raise RefusedError(f"{show_path((*path, part))} was written more than once: its place cannot change.")
        found[part] = each[-1].key, each[-1].value
    return found
