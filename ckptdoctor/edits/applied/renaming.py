"""Gives the keys of a state dict new names, and everything that repeats them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Table

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Part, Role, Sequence, Tensor, at, show_path
from ckptdoctor.checkpoint.changed_trees import changed_at, derived, missing, move_tensor, moved, with_tree
from ckptdoctor.checkpoint.metadata import place_of_metadata
from ckptdoctor.edits import Rename, RenameModules
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.applied.optimizers_left import called_by_name, follows, named_otherwise
from ckptdoctor.edits.fix import Change
from ckptdoctor.edits.renaming import named_after, renamed_modules, renamed_ties
from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import replace

METADATA = "_metadata"
PARAM_NAMES = "param_names"
PARAMS = "params"


def rename(checkpoint: Checkpoint, edit: Rename) -> Checkpoint:
    """Raise RefusedError when a key is not there, or when two keys would get one name (both are named)."""
    names = dict(edit.pairs)
    path = edit.state_dict
    tree = changed_at(checkpoint.tree, path, lambda node: _renamed(node, path, names))
    keys = _keys(checkpoint.tree, path)
    for state_dict in checkpoint.state_dicts:
        if state_dict.role is Role.OPTIMIZER:
            tree = _with_param_names(tree, state_dict.path, names)
            if named_after(called_by_name(at(checkpoint.tree, state_dict.path)), keys):
                tree = _with_names(tree, state_dict.path, names)
    return _with_ties(with_tree(checkpoint, tree), checkpoint, edit)


def _with_ties(after: Checkpoint, before: Checkpoint, edit: Rename) -> Checkpoint:
    """Return the same, with the notes of safetensors' metadata on tied names as the new names have it."""
    if not before.metadata or place_of_metadata(before.tree) != edit.state_dict:
        return after
    names = dict(edit.pairs)
    renames = {key: names.get(key, key) for key in _keys(before.tree, edit.state_dict)}
    metadata = renamed_ties(before.metadata, renames)
    return after if metadata == before.metadata else replace(after, metadata=metadata)


def rename_modules(checkpoint: Checkpoint, edit: RenameModules) -> Checkpoint:
    """Raise RefusedError when the state dict has no ``_metadata``, or when two prefixes would get one name."""
    names = dict(edit.pairs)

    def change(node: Node) -> Node:
        found = _metadata(node)
        if not isinstance(node, Mapping) or found is None:
            raise RefusedError(f"{show_path(edit.state_dict)} has no _metadata whose prefixes could be renamed.")
        for old in names:
            if old not in dict(found.entries):
                raise RefusedError(f'The _metadata of {show_path(edit.state_dict)} has no prefix "{old}".')
        entries = _entries(found, (*edit.state_dict, METADATA), names)
        return _with_metadata(node, derived(found, entries=entries))

    return with_tree(checkpoint, changed_at(checkpoint.tree, edit.state_dict, change))


def _renamed(node: Node, path: KeyPath, names: Table[str, str]) -> Node:
    if not isinstance(node, Mapping):
        raise missing(path)
    keys = [part for part, _ in node.entries if isinstance(part, str)]
    absent = next((old for old in names if old not in set(keys)), None) if not names.keys() <= set(keys) else None
    if absent is not None:
        raise RefusedError(f'{show_path(path)} has no key "{absent}" to rename.')
    made = derived(node, entries=_entries(node, path, names))
    found = _metadata(node)
    if found is None:
        return made
    return _with_metadata(made, _following(found, {key: names.get(key, key) for key in keys}))


def _entries(node: Mapping, path: KeyPath, names: Table[str, str]) -> tuple[tuple[Part, Node], ...]:
    pairs = [(part, names.get(part, part) if isinstance(part, str) else part) for part, _ in node.entries]
    if len({new for _, new in pairs}) < len(pairs):
        _refuse_collision(path, pairs)
    entries: list[tuple[Part, Node]] = []
    for (part, new), (_, value) in zip(pairs, node.entries, strict=True):
        if new != part:
            move = move_tensor if type(value) is Tensor else moved  # nearly all are tensors
            value = move(value, (*path, part), (*path, new))  # type: ignore[arg-type]  # type() said that it is one
        entries.append((new, value))
    return tuple(entries)


def _refuse_collision(path: KeyPath, pairs: Iterable[tuple[Part, Part]]) -> None:
    """Raise RefusedError where two keys of one type would get one name."""
    owners: dict[Part, Part] = {}
    for part, new in pairs:
        rival = owners.get(new)
        if rival is not None and type(rival) is type(part):
            raise collision(path, str(rival), str(part), str(new))
        owners[new] = part


def collision(path: KeyPath, one: str, other: str, name: str) -> RefusedError:
    """Return the refusal of a rename that would make one key of two."""
    place = f" of {show_path(path)}" if path else ""
    stays = next((f'"{each}" already exists' for each in (one, other) if each == name), None)
    if stays is not None:
        moving = other if one == name else one
        return RefusedError(f'"{moving}"{place} would become "{name}", but {stays}; drop or rename one of them.')
    return RefusedError(f'"{one}" and "{other}"{place} would both become "{name}"; drop or rename one of them.')


def _metadata(node: Node) -> Mapping | None:
    if not isinstance(node, Mapping) or node.attributes is None:
        return None
    found = dict(node.attributes.entries).get(METADATA)
    return found if isinstance(found, Mapping) else None


def _with_metadata(node: Mapping, metadata: Mapping) -> Mapping:
    assert node.attributes is not None
    entries = tuple([(part, metadata if part == METADATA else value) for part, value in node.attributes.entries])
    return derived(node, attributes=derived(node.attributes, entries=entries))


def _following(metadata: Mapping, names: Table[str, str]) -> Mapping:
    """Return ``_metadata`` whose prefixes follow the keys."""
    moves = renamed_modules([part for part, _ in metadata.entries if isinstance(part, str)], names)
    kept = [(part, moves.get(part, part) if isinstance(part, str) else part, value) for part, value in metadata.entries]
    return derived(metadata, entries=tuple([(new, value) for _, new, value in kept if new is not None]))


def _keys(tree: Node, path: KeyPath) -> frozenset[str]:
    node = at(tree, path)
    return frozenset([part for part, _ in node.entries if isinstance(part, str)] if isinstance(node, Mapping) else ())


def _with_param_names(tree: Node, optimizer: KeyPath, names: Table[str, str]) -> Node:
    """Return every ``param_groups[i]["param_names"]`` of an optimizer, with the names that have new ones replaced."""
    return _with_lists(tree, optimizer, PARAM_NAMES, names)


def _with_names(tree: Node, optimizer: KeyPath, names: Table[str, str]) -> Node:
    """Return the same for an optimizer that has names instead of numbers.

    They are the keys of its state, and are in its lists of parameters.
    """
    path = (*optimizer, "state")
    state = at(tree, path)
    if isinstance(state, Mapping):
        tree = _replaced(tree, path, derived(state, entries=_entries(state, path, names)))
    return _with_lists(tree, optimizer, PARAMS, names)


def _with_lists(tree: Node, optimizer: KeyPath, which: str, names: Table[str, str]) -> Node:
    """Return every list of names that the parameter groups have under ``which``, with the new names in it."""
    try:
        groups = at(tree, (*optimizer, "param_groups"))
    except KeyError:
        return tree
    for index, group in enumerate(groups.items if isinstance(groups, Sequence) else ()):
        listed = dict(group.entries).get(which) if isinstance(group, Mapping) else None
        if isinstance(listed, Sequence) and any(isinstance(item, str) and item in names for item in listed.items):
            items = [names.get(item, item) if isinstance(item, str) else item for item in listed.items]
            made = derived(listed, items=tuple(items))
            tree = _replaced(tree, (*optimizer, "param_groups", index, which), made)
    return tree


def _replaced(tree: Node, path: KeyPath, made: Node) -> Node:
    """Return the tree with ``made`` at ``path``."""
    return changed_at(tree, path, lambda _: made)


def _told(checkpoint: Checkpoint, edit: Rename, after: Checkpoint) -> Iterator[Change]:
    counts = [(len(edit.pairs), "key")]
    moved = _differing(_prefixes(checkpoint, edit.state_dict), _prefixes(after, edit.state_dict))
    if moved:
        counts.append((moved, "_metadata entry"))
    if checkpoint.metadata != after.metadata:
        known = (after.metadata or {}).items()
        counts.append((sum(each not in known for each in (checkpoint.metadata or {}).items()), "tied name"))
    named = _param_names(checkpoint)
    if named:
        old = {pair[0] for pair in edit.pairs}
        hits = sum(name in old for name in named)
        if hits:
            counts.append((hits, "param_names entry"))
    states = follows(checkpoint, edit)
    if states:
        counts.append((states, "optimizer state"))
    yield Change("rename", edit.pairs, tuple(counts), edit.state_dict)
    yield from named_otherwise(checkpoint, edit, after)


def _differing(old: set[str], new: set[str]) -> int:
    return len(old - new) if old != new else 0


def _prefixes(checkpoint: Checkpoint, path: KeyPath) -> set[str]:
    found = next((each.metadata for each in checkpoint.state_dicts if each.path == path), None)
    return {str(part) for part, _ in found.entries} if found is not None else set()


def _param_names(checkpoint: Checkpoint) -> list[str]:
    names: list[str] = []
    for state_dict in checkpoint.state_dicts:
        try:
            groups = at(checkpoint.tree, (*state_dict.path, "param_groups"))
        except KeyError:
            continue
        for group in groups.items if isinstance(groups, Sequence) else ():
            listed = dict(group.entries).get("param_names") if isinstance(group, Mapping) else None
            names += [item for item in listed.items if isinstance(item, str)] if isinstance(listed, Sequence) else []
    return names


def _modules_told(checkpoint: Checkpoint, edit: RenameModules, after: Checkpoint) -> Iterator[Change]:
    yield Change("rename-modules", edit.pairs, ((len(edit.pairs), "_metadata entry"),), edit.state_dict)


RENAME = Act(rename, _told)
RENAME_MODULES = Act(rename_modules, _modules_told)
