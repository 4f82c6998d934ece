"""What an edit changes, in the words of the nouns that it changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ckptdoctor.checkpoint import (
    Checkpoint,
    KeyPath,
    Mapping,
    Node,
    Opaque,
    Sequence,
    at,
    show_part,
    show_path,
    walk,
)
from ckptdoctor.checkpoint.reshaping import tensors_in
from ckptdoctor.edits import (
    Cast,
    Clone,
    Compact,
    Convert,
    Densify,
    Drop,
    Edit,
    Flatten,
    MakeContiguous,
    MakeTensors,
    MoveToCpu,
    Rename,
    RenameModules,
    Renumber,
    Reorder,
    Repickle,
    Replace,
    Retag,
    SetMetadata,
    SetSuffix,
    TakeRoot,
    TextMetadata,
    Truncate,
    Unwrap,
    WriteIndex,
)
from ckptdoctor.edits.applied.moving import moved_tensors
from ckptdoctor.edits.kinds import Tie
from ckptdoctor.edits.steps import Change
from ckptdoctor.edits.tensors import TENSOR_EDITS
from ckptdoctor.facts.devices import CPU
from ckptdoctor.facts.protocols import pickle_protocol
from ckptdoctor.repair.arranging_steps import arranging_changes
from ckptdoctor.repair.optimizer_steps import follows, left_behind, named_otherwise
from ckptdoctor.wording import and_more

_PROTOCOL = 2  # what torch.save pickles with
_SHOWN = 3  # classes inside an object that are named
_PARTS = ("numpy.", "_codecs.")  # parts of numbers and bytes


def changes(checkpoint: Checkpoint, run: tuple[Edit, ...], after: Checkpoint) -> Iterator[Change]:
    """What the edits, applied at once (``edits.tensors.runs``), change in ``checkpoint`` to give ``after``."""
    edit = run[0]
    if isinstance(edit, TENSOR_EDITS):
        yield from arranging_changes(checkpoint, run, after)
        yield from left_behind(checkpoint, run)
    elif isinstance(edit, Rename):
        yield _rename(checkpoint, edit, after)
        yield from named_otherwise(checkpoint, edit, after)
    elif isinstance(edit, RenameModules):
        yield Change("rename-modules", edit.pairs, ((len(edit.pairs), "_metadata entry"),), edit.state_dict)
    elif isinstance(edit, Retag):
        yield from _retag(checkpoint, edit)
    elif isinstance(edit, MoveToCpu):
        yield from _move(checkpoint, edit)
    elif isinstance(edit, Drop):
        yield from _drop(edit)
    elif isinstance(edit, Flatten):
        yield _flatten(checkpoint, edit)
    elif isinstance(edit, Cast):
        yield from _cast(checkpoint, edit)
    elif isinstance(edit, TakeRoot):
        yield Change("take-root", (), ((len(after.tensors), "tensor"),), edit.path)
    else:
        yield _other(checkpoint, edit)


def without_returning(said: Iterable[Change], edits: Iterable[Edit]) -> Iterator[Change]:
    """The same, but that nothing is called dropped which a tie of the same step brings back under its name."""
    back = {(edit.path[:-1], edit.key) for edit in edits if isinstance(edit, Tie)}
    for change in said:
        pairs = tuple([pair for pair in change.pairs if (change.place or (), pair[0]) not in back])
        if change.kind != "drop" or len(pairs) == len(change.pairs):
            yield change
        elif pairs:
            yield replace(change, pairs=pairs, counts=((len(pairs), "entry"),))


def _other(checkpoint: Checkpoint, edit: Edit) -> Change:
    if isinstance(edit, Renumber):
        pairs = tuple([(str(old), str(new)) for old, new in edit.pairs])
        return Change("renumber", pairs, ((len(pairs), "state"),), edit.path)
    if isinstance(edit, Reorder):
        return Change("reorder", (), ((len(edit.keys), "key"),), edit.path)
    if isinstance(edit, Compact):
        return Change("compact", (), ((len(edit.storages), "storage"),))
    if isinstance(edit, MakeTensors):
        pairs = tuple([(show_path(path), "tensor") for path in edit.paths])
        return Change("make-tensors", pairs, ((len(edit.paths), "array"),))
    if isinstance(edit, MakeContiguous):
        return Change("make-contiguous", (), ((len(edit.paths), "tensor"),))
    if isinstance(edit, Clone):
        return Change("clone", (), ((len(edit.paths), "tensor"),))
    if isinstance(edit, Densify):
        return Change("densify", (), ((len(edit.paths), "tensor"),))
    if isinstance(edit, Replace):
        return Change("replace", (_replaced(checkpoint, edit),), ((1, "object"),), edit.path)
    if isinstance(edit, Repickle):
        protocol = pickle_protocol(checkpoint.container) or 0
        newer = protocol > _PROTOCOL
        return Change("repickle", ((f"pickle protocol {protocol}", f"protocol {_PROTOCOL}"),) if newer else (), ())
    if isinstance(edit, TextMetadata):
        return Change("text-metadata", (), ((len(edit.entries), "entry"),))
    if isinstance(edit, SetMetadata):
        old = (checkpoint.metadata or {}).get(edit.key)
        return Change("set-metadata", ((f"{edit.key}: {old or 'not set'}", f"{edit.key}: {edit.value}"),), ())
    if isinstance(edit, SetSuffix):
        return Change("set-suffix", (("", edit.suffix),), ())
    if isinstance(edit, Truncate):
        return Change("truncate", (), ((checkpoint.size - edit.length, "byte"),))
    if isinstance(edit, Unwrap):
        return Change("unwrap", (), ((sum(each.subclass in edit.classes for each in checkpoint.tensors), "tensor"),))
    if isinstance(edit, WriteIndex):
        return Change("write-index", (("", edit.name),), ((len(checkpoint.tensors), "tensor"),))
    assert isinstance(edit, Convert)
    return Change("convert", ((checkpoint.format, edit.format),), ())


def _cast(checkpoint: Checkpoint, edit: Cast) -> Iterator[Change]:
    """One change for each dtype that tensors had, and each place."""
    wanted = set(edit.paths)
    groups: dict[tuple[KeyPath, str], list[str]] = {}
    for tensor in checkpoint.tensors:
        if tensor.path in wanted and tensor.dtype.name != edit.dtype:
            groups.setdefault((tensor.path[:-1], tensor.dtype.name), []).append(show_part(tensor.path[-1]))
    for (place, dtype), names in groups.items():
        pairs = tuple([(f"{name} [{dtype}]", f"{name} [{edit.dtype}]") for name in names])
        yield Change("cast", pairs, ((len(names), "tensor"),), place)


def _rename(checkpoint: Checkpoint, edit: Rename, after: Checkpoint) -> Change:
    counts = [(len(edit.pairs), "key")]
    moved = _differing(_metadata(checkpoint, edit.state_dict), _metadata(after, edit.state_dict))
    if moved:
        counts.append((moved, "_metadata entry"))
    named = _param_names(checkpoint)
    if named:
        old = {pair[0] for pair in edit.pairs}
        hits = sum(name in old for name in named)
        if hits:
            counts.append((hits, "param_names entry"))
    states = follows(checkpoint, edit)
    if states:
        counts.append((states, "optimizer state"))
    return Change("rename", edit.pairs, tuple(counts), edit.state_dict)


def _differing(old: set[str], new: set[str]) -> int:
    return len(old - new) if old != new else 0


def _metadata(checkpoint: Checkpoint, path: KeyPath) -> set[str]:
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


def _retag(checkpoint: Checkpoint, edit: Retag) -> Iterator[Change]:
    wanted = None if edit.storages is None else set(edit.storages)
    tally: dict[str, int] = {}
    for storage in checkpoint.storages:
        named = storage.device != edit.to if edit.devices is None else storage.device in edit.devices
        if named and storage.device != edit.to and (wanted is None or storage.key in wanted):
            tally[storage.device] = tally.get(storage.device, 0) + 1
    for device, number in tally.items():
        yield Change("retag", ((device, edit.to),), ((number, "storage"),))


def _move(checkpoint: Checkpoint, edit: MoveToCpu) -> Iterator[Change]:
    tally = Counter([tensor.device for tensor in moved_tensors(checkpoint, edit)])
    for device, number in tally.items():
        yield Change("move-to-cpu", ((device, CPU),), ((number, "tensor"),))


def _drop(edit: Drop) -> Iterator[Change]:
    by_parent: dict[KeyPath, list[str]] = {}
    for path in edit.paths:
        by_parent.setdefault(path[:-1], []).append(str(path[-1]))
    for parent, keys in by_parent.items():
        yield Change("drop", tuple([(key, "") for key in keys]), ((len(keys), "entry"),), parent)


def _flatten(checkpoint: Checkpoint, edit: Flatten) -> Change:
    """Each tensor's place in the object, and its key; and how many the object has that are in none of those places."""
    inside = list(tensors_in(at(checkpoint.tree, edit.path)))
    taken = {(*edit.path, *place) for _, place in edit.tensors}
    views = {tensor.place_id or tensor.path for tensor in inside if tensor.path in taken}
    others = {tensor.place_id or tensor.path for tensor in inside} - views
    counts = [(len(edit.tensors), "tensor")]
    if others:
        counts.append((len(others), "tensor left out"))
    pairs = tuple([("/".join(map(show_part, place)), key) for key, place in edit.tensors])
    return Change("flatten", pairs, tuple(counts), edit.path)


def _replaced(checkpoint: Checkpoint, edit: Replace) -> tuple[str, str]:
    """What stands there, and what will; of a list with the same texts or numbers, that they change places."""
    node, value = at(checkpoint.tree, edit.path), edit.value
    if isinstance(node, Sequence) and isinstance(value, list):
        items = [item for item in node.items if isinstance(item, (int, str))]
        if len(items) == len(node.items) and Counter(items) == Counter(map(_plain, value)):
            return f"{len(items):,} {'entry' if len(items) == 1 else 'entries'}", "the same in another order"
    return _classes(checkpoint, edit.path), type(value).__name__


def _plain(value: object) -> object:
    return value if isinstance(value, (int, str)) else None


def _classes(checkpoint: Checkpoint, path: KeyPath) -> str:
    """What stands at a path, and the classes of objects inside it, which are lost with it."""
    own, inside = _kind(checkpoint, path), dict[str, None]()
    for _, node in walk(at(checkpoint.tree, path)):
        if isinstance(node, Opaque) and not node.class_name.startswith(_PARTS):
            inside.setdefault(node.class_name)
    inside.pop(own, None)
    names = list(inside)
    return f"{own} with {and_more(names, _SHOWN, before=', and ', spelt=str)}" if names else own


def _kind(checkpoint: Checkpoint, path: KeyPath) -> str:
    """What stands at a path, in a word: its class or kind."""
    node: Node = at(checkpoint.tree, path)
    for attribute in ("class_name", "kind", "name"):
        found = getattr(node, attribute, None)
        if isinstance(found, str):
            return found
    return type(node).__name__
