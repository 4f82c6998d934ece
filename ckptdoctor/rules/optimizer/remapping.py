"""The rules about optimizers share the repair that gives each parameter's state the number it must have."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint import Checkpoint, Mapping, Node, Part, StateDict, at, show_path
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.edits import Drop, Edit, Fix, Renumber, Reorder, Replace, Safety
from ckptdoctor.facts.optimizers import SavedOptimizer
from ckptdoctor.facts.plain_data import NotPlainError, as_plain
from ckptdoctor.facts.weight_sets import only_model
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.optimizer_order import NoRemapError, Remap, own_target, remap, target_of

_SINGLE = 16  # groups that are changed one by one; more are written anew, all at once


def remap_fix(subject: Checkpoint | Comparison, optimizer: SavedOptimizer) -> tuple[Fix | None, str]:
    """Return the repair, or why there is none, or "" where the optimizer is as the target, or the file, wants it."""
    try:
        edits, safety, source = _remapped(subject, optimizer)
    except NoRemapError as error:
        return None, f"No repair is offered: {error}."
    if not edits:
        return None, ""
    option = subject.reference.option if isinstance(subject, Comparison) else ""
    title = f"number the parameters of {show_path(optimizer.path)} as {source} does"
    if any(isinstance(edit, Drop) for edit in edits):
        title += ", and drop the states of those that it does not have"
    words = ["--remap-optimizer", option, "--unsafe-fixes" if safety is Safety.UNSAFE else ""]
    return Fix(title, edits, safety, " ".join(filter(None, words))), ""


def _remapped(subject: Checkpoint | Comparison, optimizer: SavedOptimizer) -> tuple[tuple[Edit, ...], Safety, str]:
    """Return the edits, how safe they are, and whose order it is. Raises NoRemapError where nobody can tell."""
    checkpoint = subject.checkpoint if isinstance(subject, Comparison) else subject
    model = subject.state_dict if isinstance(subject, Comparison) else only_model(checkpoint)
    if model is None:
        raise NoRemapError("the file does not hold one set of weights whose parameters these could be")
    compared = isinstance(subject, Comparison)
    target = target_of(subject, model, optimizer) if isinstance(subject, Comparison) else own_target(subject, model)
    found = remap(optimizer, target)
    if found is None:
        return (), Safety.SAFE, target.source
    edits = list(_edits(checkpoint, optimizer, found))
    if isinstance(subject, Comparison):
        edits += _reordered(subject, model, target.order)
    sure = compared and found.sure and not found.lost
    return tuple(edits), Safety.CONFIRMED if sure else Safety.UNSAFE, target.source


def _edits(checkpoint: Checkpoint, optimizer: SavedOptimizer, found: Remap) -> list[Edit]:
    place = (*optimizer.path, "state")
    state = at(checkpoint.tree, place)
    present = [part for part, _ in state.entries] if isinstance(state, Mapping) else []
    names = [name for _, group in found.groups for name in group]
    new = {found.numbers[name]: number for number, name in enumerate(names) if name in found.numbers}
    known = set(found.numbers.values())
    if any(type(part) is int and part not in known for part in present):
        raise NoRemapError("it has states of parameters that are in none of its groups")
    gone = [part for part in present if type(part) is int and part not in new]
    pairs = [(part, new[part]) for part in present if type(part) is int and part in new and new[part] != part]
    edits: list[Edit] = [Drop(tuple([(*place, part) for part in gone]))] if gone else []
    edits += [Renumber(place, tuple(pairs))] if pairs else []
    return [*edits, *_groups(checkpoint, optimizer, found)]


def _groups(checkpoint: Checkpoint, optimizer: SavedOptimizer, found: Remap) -> list[Edit]:
    """Return the parameter groups with their new numbers, and names where the file notes them."""
    place = (*optimizer.path, "param_groups")
    groups = at(checkpoint.tree, place)
    assert isinstance(groups, Items)
    told = _labels(groups, optimizer, found)
    wanted = []
    begin = 0
    for _, names in found.groups:
        lists: dict[str, list[object]] = {"params": list(range(begin, begin + len(names)))}
        if told is not None:
            lists["param_names"] = [told.get(name, name) for name in names]
        wanted.append(lists)
        begin += len(names)
    if [home for home, _ in found.groups] == list(range(len(groups.items))) and len(wanted) <= _SINGLE:
        return [
            Replace((*place, number, key), listed)
            for number, lists in enumerate(wanted)
            for key, listed in lists.items()
            if not _holds(groups.items[number], key, listed)
        ]
    try:
        options = [dict(_plain(optimizer.options[home])) for home, _ in found.groups]
    except NotPlainError as error:
        raise NoRemapError(f"its groups cannot be rewritten: {error}") from error
    return [Replace(place, [{**each, **lists} for each, lists in zip(options, wanted, strict=True)])]


def _plain(entries: Sequence[tuple[Part, Node]]) -> dict[str, object]:
    return {str(part): as_plain(node) for part, node in entries}


def _holds(group: object, key: str, listed: list[object]) -> bool:
    found = dict(group.entries).get(key) if isinstance(group, Mapping) else None
    return isinstance(found, Items) and list(found.items) == listed


def _labels(groups: Items, optimizer: SavedOptimizer, found: Remap) -> dict[str, str] | None:
    """Name in the target → what the file calls it in ``param_names``; None where it notes no names."""
    if optimizer.names is None:
        return None
    bare = {key: name for name, key in found.labels.items()}
    told: dict[str, str] = {}
    for group, slots in zip(groups.items, optimizer.groups, strict=True):
        listed = dict(group.entries).get("param_names") if isinstance(group, Mapping) else None
        texts = listed.items if isinstance(listed, Items) else ()
        for text, slot in zip(texts, slots, strict=True):
            if slot.name in bare and isinstance(text, str):
                told[bare[slot.name]] = text
    return told


def _reordered(comparison: Comparison, model: StateDict, order: Sequence[str]) -> list[Edit]:
    """Return the weights in the order of the target too, so that the file agrees with itself."""
    rank = {name: number for number, name in enumerate(comparison.reference.tensors)}
    node = at(comparison.checkpoint.tree, model.path)
    keys = [part for part, _ in node.entries] if isinstance(node, Mapping) else []
    places: list[int] = []
    for key in keys:  # what the target does not have stays behind what it follows
        before = places[-1] if places else -1
        places.append(rank.get(comparison.final_name(key), before) if isinstance(key, str) else before)
    if places == sorted(places) or len(set(keys)) != len(keys):
        return []
    turned = sorted(range(len(keys)), key=places.__getitem__)
    return [Reorder(model.path, tuple([keys[index] for index in turned]))]
