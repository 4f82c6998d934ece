"""Wrong results of ``apply``, planted: each saboteur gives every contents in which one thing is wrong in its way.

What a saboteur gives is whole in itself, as it would come out of a wrong edit: lists of tensors, storages and state
dicts follow from the tree. ``sabotaged.txt`` says which saboteurs find something to do in which repair: ``python -m
tests.account.sabotage`` writes it anew.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from ckptdoctor.account.account import discrepancy
from ckptdoctor.checkpoint import (
    Checkpoint,
    Cycle,
    Extent,
    GlobalName,
    Mapping,
    Node,
    Note,
    NoteKind,
    Opaque,
    Role,
    Sequence,
    Storage,
    Tensor,
)
from ckptdoctor.checkpoint.changed_trees import mapped, nodes_below, with_nodes, with_tree
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.edits import Edit
from ckptdoctor.edits.applied.apply_edits import apply
from ckptdoctor.edits.elements import Dequantized, Elements, Joined, Normed, View, views
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.repair.plan import Plan
from tests.account.repairs import CASES, EXAMPLES, plan_of

RECORD = Path(__file__).with_name("sabotaged.txt")


@dataclass(frozen=True)
class Right:
    """A right repair: what the edits make of the original, and what new storages hold."""

    original: Checkpoint
    edits: tuple[Edit, ...]
    wanted: Checkpoint
    held: dict[str, Elements]
    kept: dict[str, tuple[tuple[int, int], ...]]

    def discrepancy(self) -> str | None:
        """What the account says."""
        return discrepancy(self.original, self.wanted, self.edits, self.held, self.kept)

    @classmethod
    def of(cls, plan: Plan) -> Right:
        """That of a plan."""
        return cls(plan.original, plan.edits, plan.expected, dict(plan.wanted.remade), dict(plan.wanted.pieces))


Saboteur = Callable[[Right], Iterator[Right]]
SABOTEURS: dict[str, Saboteur] = {}


def saboteur(function: Saboteur) -> Saboteur:
    """One more, by the name of its function."""
    SABOTEURS[function.__name__.strip("_").replace("_", "-")] = function
    return function


def sabotages(right: Right, most: int | None = None) -> Iterator[tuple[str, Right]]:
    """The wrong results that every saboteur makes of a right one: at most so many of each, None: at every place."""
    for name, each in SABOTEURS.items():
        yield from ((name, wrong) for wrong in islice(_others(name, each(right), right), most))


def _others(name: str, made: Iterator[Right], right: Right) -> Iterator[Right]:
    for wrong in made:
        # what is of another type may be equal, as 1 and 1.0 are
        if name.endswith("type") or (wrong.wanted, wrong.held, wrong.kept) != (right.wanted, right.held, right.kept):
            yield wrong


def _with(right: Right, wanted: Checkpoint) -> Right:
    return replace(right, wanted=wanted)


def _with_nodes(right: Right, change: Callable[[Node], Node]) -> Right:
    """With another tree: every node is changed, those inside others first."""

    def changed(node: Node) -> Node:
        below = nodes_below(node)
        made = [changed(each) for each in below]
        if any(new is not old for new, old in zip(made, below, strict=True)):
            node = with_nodes(node, made)
        return change(node)

    return _with(right, with_tree(right.wanted, changed(right.wanted.tree)))


def _exchanged(right: Right, new: dict[int, Node]) -> Right:
    """With other tensors in the places of these, by their ``id``."""

    def change(node: Tensor | Cycle) -> Node:
        return new.get(id(node), node)

    return _with(right, with_tree(right.wanted, mapped(right.wanted.tree, change)))


def _each_tensor(right: Right, change: Callable[[Tensor], Tensor]) -> Iterator[Right]:
    for tensor in right.wanted.tensors:
        made = change(tensor)
        if made != tensor:
            yield _exchanged(right, {id(tensor): made})


def _nodes(right: Right, kind: type) -> list[Any]:
    found, stack = [], [right.wanted.tree]
    while stack:
        node = stack.pop()
        if isinstance(node, kind):
            found.append(node)
        stack.extend(nodes_below(node))
    return found


def _in_place_of(right: Right, old: Node, new: Node) -> Right:
    return _with_nodes(right, lambda node: new if _is(node, old) else node)


def _is(node: Node, old: Node) -> bool:
    """Containers that are equal and not one are made anew on the way: told by what they hold."""
    return node is old or (isinstance(old, (Mapping, Sequence, Opaque)) and node == old)


# ---- tensors


def _alike(one: Tensor, other: Tensor) -> bool:
    return (
        one.storage is not None and other.storage is not None and (one.dtype, one.shape) == (other.dtype, other.shape)
    )


def _bytes_of(tensor: Tensor, other: Tensor) -> Tensor:
    return replace(tensor, storage=other.storage, offset=other.offset, stride=other.stride, device=other.device)


@saboteur
def _two_tensors_swapped(right: Right) -> Iterator[Right]:
    for one, other in combinations(right.wanted.tensors, 2):
        if _alike(one, other):
            yield _exchanged(right, {id(one): _bytes_of(one, other), id(other): _bytes_of(other, one)})


@saboteur
def _one_tensor_twice(right: Right) -> Iterator[Right]:
    for one, other in combinations(right.wanted.tensors, 2):
        if _alike(one, other):
            yield _exchanged(right, {id(one): _bytes_of(one, other)})


@saboteur
def _a_tensor_lost(right: Right) -> Iterator[Right]:
    for tensor in right.wanted.tensors:
        yield _exchanged(right, {id(tensor): None})


@saboteur
def _offsets_exchanged(right: Right) -> Iterator[Right]:
    for one, other in combinations(right.wanted.tensors, 2):
        if one.storage is not None and one.storage == other.storage and one.offset != other.offset:
            one_too, other_too = replace(one, offset=other.offset), replace(other, offset=one.offset)
            yield _exchanged(right, {id(one): one_too, id(other): other_too})


@saboteur
def _another_offset(right: Right) -> Iterator[Right]:
    yield from _each_tensor(right, lambda each: replace(each, offset=each.offset + 1))


@saboteur
def _another_stride(right: Right) -> Iterator[Right]:
    yield from _each_tensor(right, lambda each: replace(each, stride=each.stride[::-1]))


@saboteur
def _another_shape(right: Right) -> Iterator[Right]:
    yield from _each_tensor(right, lambda each: replace(each, shape=each.shape[::-1]))


@saboteur
def _another_dtype(right: Right) -> Iterator[Right]:
    yield from _each_tensor(right, lambda each: replace(each, dtype=BY_NAME["int32"]))


@saboteur
def _another_device(right: Right) -> Iterator[Right]:
    yield from _each_tensor(right, lambda each: replace(each, device="cuda:7"))


@saboteur
def _requires_grad_flipped(right: Right) -> Iterator[Right]:
    yield from _each_tensor(right, lambda each: replace(each, requires_grad=not each.requires_grad))


@saboteur
def _a_parameter_or_none(right: Right) -> Iterator[Right]:
    yield from _each_tensor(right, lambda each: replace(each, is_parameter=not each.is_parameter))


@saboteur
def _rebuilt_otherwise(right: Right) -> Iterator[Right]:
    yield from _each_tensor(right, lambda each: replace(each, rebuild="torch._utils._rebuild_other"))


@saboteur
def _another_class_or_layout(right: Right) -> Iterator[Right]:
    yield from _each_tensor(right, lambda each: replace(each, subclass="x.Y"))
    yield from _each_tensor(right, lambda each: replace(each, layout="sparse_coo"))
    yield from _each_tensor(right, lambda each: replace(each, details=(("conj", True),)))


@saboteur
def _without_its_storage(right: Right) -> Iterator[Right]:
    yield from _each_tensor(right, lambda each: replace(each, storage=None))


@saboteur
def _another_path_in_the_tensor(right: Right) -> Iterator[Right]:
    yield from _each_tensor(right, lambda each: replace(each, path=(*each.path, "x")))


@saboteur
def _parts_changed(right: Right) -> Iterator[Right]:
    yield from _each_tensor(right, lambda each: replace(each, parts=each.parts[:-1]))
    for tensor in right.wanted.tensors:
        for at, part in enumerate(tensor.parts):
            odd = (
                replace(part, offset=part.offset + 1),
                replace(part, shape=(*part.shape, 1)),
                replace(part, path=(*part.path, "x")),
                replace(part, device="cuda:7"),
            )
            for each in odd:
                parts = (*tensor.parts[:at], each, *tensor.parts[at + 1 :])
                yield _exchanged(right, {id(tensor): replace(tensor, parts=parts)})


# ---- storages


def _users(right: Right, storage: Storage) -> list[Tensor]:
    return [each for each in right.wanted.tensors if each.storage is not None and each.storage.key == storage.key]


def _each_storage(right: Right, change: Callable[[Storage], Storage]) -> Iterator[Right]:
    for old in right.wanted.storages:
        new = change(old)
        if new == old:
            continue
        new_storages = tuple([new if each is old else each for each in right.wanted.storages])
        changed = {id(each): replace(each, storage=new) for each in _users(right, old)}
        yield _exchanged(_with(right, replace(right.wanted, storages=new_storages)), changed)


@saboteur
def _a_tie_lost(right: Right) -> Iterator[Right]:
    for storage in right.wanted.storages:
        users = _users(right, storage)
        for tensor in users if len(users) > 1 else ():
            alone = replace(storage, key=f"{storage.key} again")
            held = dict(right.held)
            if storage.key in held:
                held[alone.key] = held[storage.key]
            yield replace(_exchanged(right, {id(tensor): replace(tensor, storage=alone)}), held=held)


@saboteur
def _a_storage_of_other_bytes(right: Right) -> Iterator[Right]:
    def elsewhere(storage: Storage) -> Storage:
        extent = storage.extent
        return replace(storage, extent=extent and Extent(extent.file, extent.offset + 64, extent.length))

    yield from _each_storage(right, elsewhere)


@saboteur
def _a_storage_of_another_length(right: Right) -> Iterator[Right]:
    yield from _each_storage(right, lambda each: replace(each, nbytes=each.nbytes + 8))


@saboteur
def _a_storage_of_another_dtype(right: Right) -> Iterator[Right]:
    yield from _each_storage(
        right, lambda each: replace(each, dtype=BY_NAME["int64"] if each.dtype != BY_NAME["int64"] else None)
    )


@saboteur
def _a_storage_of_another_device(right: Right) -> Iterator[Right]:
    yield from _each_storage(right, lambda each: replace(each, device="cuda:7"))


@saboteur
def _a_storage_too_many(right: Right) -> Iterator[Right]:
    odd = Storage("odd", 8, BY_NAME["float32"], "cpu", None)
    yield _with(right, replace(right.wanted, storages=(*right.wanted.storages, odd)))


@saboteur
def _storages_in_another_order(right: Right) -> Iterator[Right]:
    if len([each for each in right.wanted.storages if each in right.original.storages]) > 1:
        yield _with(right, replace(right.wanted, storages=right.wanted.storages[::-1]))


@saboteur
def _other_ranges_kept(right: Right) -> Iterator[Right]:
    for key, pieces in right.kept.items():
        moved = tuple([(start + 4, length) for start, length in pieces])
        for made in (moved, pieces[1:], (*pieces, (4000, 4))):
            yield replace(right, kept={**right.kept, key: made})
    for storage in right.original.storages[:1]:
        if storage.nbytes:
            yield replace(right, kept={**right.kept, storage.key: ((0, storage.nbytes - 1),)})


# ---- what new storages hold


def _each_held(right: Right, change: Callable[[Elements], Elements]) -> Iterator[Right]:
    for key, elements in right.held.items():
        made = change(elements)
        if made != elements and any(each.key == key for each in right.wanted.storages):
            yield replace(right, held={**right.held, key: made})


def _of_views(elements: Elements, change: Callable[[View], View]) -> Elements:
    """With its first view changed."""
    if isinstance(elements, View):
        return change(elements)
    inner = getattr(elements, "inner", None)
    if inner is not None:
        return replace(elements, inner=_of_views(inner, change))
    return replace(elements, parts=(_of_views(elements.parts[0], change), *elements.parts[1:]))


@saboteur
def _made_of_other_bytes(right: Right) -> Iterator[Right]:
    yield from _each_held(
        right, lambda each: _of_views(each, lambda view: replace(view, start=view.start + view.width))
    )


@saboteur
def _made_of_another_storage(right: Right) -> Iterator[Right]:
    for other in right.original.storages[:3]:
        key = other.key
        yield from _each_held(
            right,
            lambda each, key=key: (
                _of_views(each, lambda view: replace(view, source=key))
                if all(view.held is None for view in views(each))
                else each
            ),
        )


@saboteur
def _made_with_another_stride(right: Right) -> Iterator[Right]:
    yield from _each_held(right, lambda each: _of_views(each, lambda view: replace(view, stride=view.stride[::-1])))


@saboteur
def _made_in_another_order(right: Right) -> Iterator[Right]:
    yield from _each_held(right, _with_parts_reversed)


def _with_parts_reversed(elements: Elements) -> Elements:
    if isinstance(elements, View):
        return elements
    inner = getattr(elements, "inner", None)
    if inner is not None:
        return replace(elements, inner=_with_parts_reversed(inner))
    if len({each.shape for each in elements.parts}) == 1 or not isinstance(elements, Joined):
        return replace(elements, parts=elements.parts[::-1])
    return elements


@saboteur
def _made_by_another_rule(right: Right) -> Iterator[Right]:
    yield from _each_held(right, lambda each: replace(each, dim=1) if isinstance(each, Normed) else each)
    fields = {"numbers": (3.0,), "norm": "spectral", "affine": (2.0, 1.0), "form": "scaled", "layout": "odd"}
    for name, value in {**fields, "kind": "float64", "exact": True, "scheme": "int8", "dtype": "float64"}.items():
        yield from _each_held(
            right, lambda each, name=name, value=value: replace(each, **{name: value}) if hasattr(each, name) else each
        )


@saboteur
def _scales_shared_otherwise(right: Right) -> Iterator[Right]:
    for runs in ((9, 9, 9, 9), (6, 4, 1, 4), (4, 6, 2, 6), (4, 6, 1, 3), (1, 24, 1, 24)):

        def change(elements: Elements, runs: tuple[int, ...] = runs) -> Elements:
            return replace(elements, runs=runs) if isinstance(elements, Dequantized) else elements

        yield from _each_held(right, change)


@saboteur
def _joined_along_another_dimension(right: Right) -> Iterator[Right]:
    def change(elements: Elements) -> Elements:
        if (
            not isinstance(elements, Joined)
            or len(elements.shape) != 2
            or len({each.shape for each in elements.parts}) > 1
        ):
            return elements
        rows, columns = elements.parts[0].shape
        if rows == 1:  # the same either way
            return elements
        count = len(elements.parts)
        shape = (rows, columns * count) if elements.dim == 0 else (rows * count, columns)
        return replace(elements, dim=1 - elements.dim, shape=shape)

    yield from _each_held(right, change)


@saboteur
def _another_number_filled_in(right: Right) -> Iterator[Right]:
    for key, elements in right.held.items():
        if isinstance(elements, View) and isinstance(elements.held, bytes) and elements.held:
            odd = bytes([elements.held[0] ^ 1]) + elements.held[1:]
            made = replace(elements, held=odd, source=f"{elements.source} else")  # what is held is not compared
            yield replace(right, held={**right.held, key: made})


@saboteur
def _an_old_storage_said_to_be_made(right: Right) -> Iterator[Right]:
    for storage in right.original.storages[:1]:
        view = View(storage.key, 0, 1, (storage.nbytes,), (1,))
        yield replace(right, held={**right.held, storage.key: view})


@saboteur
def _two_made_tensors_exchanged(right: Right) -> Iterator[Right]:
    keys = [each.key for each in right.wanted.storages if each.key in right.held]
    for one, other in combinations(keys, 2):
        yield replace(right, held={**right.held, one: right.held[other], other: right.held[one]})


# ---- keys, values, containers


def _each_mapping(right: Right, change: Callable[[Mapping], Iterator[Mapping]]) -> Iterator[Right]:
    for node in _nodes(right, Mapping):
        for made in change(node):
            yield _in_place_of(right, node, made)


@saboteur
def _a_key_renamed(right: Right) -> Iterator[Right]:
    def change(node: Mapping) -> Iterator[Mapping]:
        for at, (_, value) in enumerate(node.entries):
            yield replace(node, entries=(*node.entries[:at], ("another", value), *node.entries[at + 1 :]))

    yield from _each_mapping(right, change)


@saboteur
def _two_keys_exchanged(right: Right) -> Iterator[Right]:
    def change(node: Mapping) -> Iterator[Mapping]:
        for at in range(len(node.entries) - 1):
            (one, first), (other, second) = node.entries[at : at + 2]
            yield replace(node, entries=(*node.entries[:at], (other, first), (one, second), *node.entries[at + 2 :]))

    yield from _each_mapping(right, change)


@saboteur
def _another_order_of_keys(right: Right) -> Iterator[Right]:
    def change(node: Mapping) -> Iterator[Mapping]:
        for at in range(len(node.entries) - 1):
            yield replace(node, entries=(*node.entries[:at], *node.entries[at : at + 2][::-1], *node.entries[at + 2 :]))

    yield from _each_mapping(right, change)


@saboteur
def _an_entry_lost(right: Right) -> Iterator[Right]:
    def change(node: Mapping) -> Iterator[Mapping]:
        for at in range(len(node.entries)):
            yield replace(node, entries=(*node.entries[:at], *node.entries[at + 1 :]))

    yield from _each_mapping(right, change)


@saboteur
def _an_entry_too_many(right: Right) -> Iterator[Right]:
    def change(node: Mapping) -> Iterator[Mapping]:
        yield replace(node, entries=(*node.entries, ("another", 1)))

    yield from _each_mapping(right, change)


@saboteur
def _a_made_tensor_too_many(right: Right) -> Iterator[Right]:
    def change(node: Mapping) -> Iterator[Mapping]:
        last = next((value for _, value in reversed(node.entries) if isinstance(value, Tensor)), None)
        if last is not None:
            extra = replace(last, path=(*last.path[:-1], "another"))
            yield replace(node, entries=(*node.entries, ("another", extra)))

    yield from _each_mapping(right, change)


@saboteur
def _another_kind_of_dict(right: Right) -> Iterator[Right]:
    yield from _each_mapping(right, lambda node: iter([replace(node, kind="x.Dict")]))


@saboteur
def _attributes_lost(right: Right) -> Iterator[Right]:
    yield from _each_mapping(right, lambda node: iter([replace(node, attributes=None)]))


@saboteur
def _a_list_in_another_order(right: Right) -> Iterator[Right]:
    for node in _nodes(right, Sequence):
        if node.items[::-1] != node.items:
            yield _in_place_of(right, node, replace(node, items=node.items[::-1]))


@saboteur
def _a_list_of_another_length_or_kind(right: Right) -> Iterator[Right]:
    for node in _nodes(right, Sequence):
        yield _in_place_of(right, node, replace(node, items=(*node.items, None)))
        yield _in_place_of(right, node, replace(node, kind="x.List"))


@saboteur
def _an_object_of_another_class(right: Right) -> Iterator[Right]:
    for node in _nodes(right, Opaque):
        yield _in_place_of(right, node, replace(node, class_name="x.Y"))
        yield _in_place_of(right, node, replace(node, arguments=(*node.arguments, 1)))
        if node.state is not None:
            yield _in_place_of(right, node, replace(node, state=None))


@saboteur
def _a_plain_value_changed(right: Right) -> Iterator[Right]:
    def odd(value: Node) -> Node:
        if value is None or isinstance(value, bool):
            return 1
        if isinstance(value, (int, float)):
            return -value or 1
        return value + (b"x" if isinstance(value, bytes) else "x") if isinstance(value, (str, bytes)) else value

    for node in [*_nodes(right, Mapping), *_nodes(right, Sequence)]:
        below = nodes_below(node)
        for at, value in enumerate(below):
            if not isinstance(value, (Mapping, Sequence, Opaque, Tensor)) and odd(value) is not value:
                yield _in_place_of(right, node, with_nodes(node, [*below[:at], odd(value), *below[at + 1 :]]))


@saboteur
def _a_value_of_another_type(right: Right) -> Iterator[Right]:
    for node in [*_nodes(right, Mapping), *_nodes(right, Sequence)]:
        below = nodes_below(node)
        for at, value in enumerate(below):
            if type(value) is int or (type(value) is float and value.is_integer()):
                made = float(value) if type(value) is int else int(value)
                yield _in_place_of(right, node, with_nodes(node, [*below[:at], made, *below[at + 1 :]]))


@saboteur
def _a_way_back_to_elsewhere(right: Right) -> Iterator[Right]:
    if _nodes(right, Cycle):
        yield _with(
            right,
            with_tree(
                right.wanted,
                mapped(right.wanted.tree, lambda node: Cycle(("model",)) if isinstance(node, Cycle) else node),
            ),
        )


# ---- edits carried out in part


@saboteur
def _nothing_done(right: Right) -> Iterator[Right]:
    yield replace(right, wanted=right.original, held={})


@saboteur
def _an_edit_forgotten(right: Right) -> Iterator[Right]:
    for at in range(len(right.edits)):
        yield from _applied(right, [*right.edits[:at], *right.edits[at + 1 :]])


@saboteur
def _an_edit_done_in_part(right: Right) -> Iterator[Right]:
    for at, edit in enumerate(right.edits):
        for name in ("paths", "pairs", "storages", "classes", "entries", "tensors"):
            of = getattr(edit, name, None)
            for gone in (
                range(len(of))
                if isinstance(of, tuple) and type(edit).__name__ not in ("Fuse", "FuseNorm", "Dequantize", "Compute")
                else ()
            ):
                smaller = replace(edit, **{name: (*of[:gone], *of[gone + 1 :])})
                yield from _applied(right, [*right.edits[:at], smaller, *right.edits[at + 1 :]])


def _applied(right: Right, edits: list[Edit]) -> Iterator[Right]:
    try:
        yield _with(right, apply(right.original, edits))
    except CkptDoctorError:
        return


# ---- around the contents


@saboteur
def _other_metadata(right: Right) -> Iterator[Right]:
    found = right.wanted.metadata
    yield _with(right, replace(right.wanted, metadata={**(found or {}), "another": "x"}))
    for key in found or {}:
        yield _with(right, replace(right.wanted, metadata={**(found or {}), key: "another"}))
        yield _with(
            right, replace(right.wanted, metadata={each: text for each, text in (found or {}).items() if each != key})
        )


@saboteur
def _another_format_or_size(right: Right) -> Iterator[Right]:
    yield _with(right, replace(right.wanted, format="torch tar"))
    yield _with(right, replace(right.wanted, size=right.wanted.size + 1))


@saboteur
def _other_notes(right: Right) -> Iterator[Right]:
    note = Note(NoteKind.NOT_EXAMINED, "another")
    yield _with(right, replace(right.wanted, notes=(*right.wanted.notes, note)))


@saboteur
def _a_name_too_many(right: Right) -> Iterator[Right]:
    name = GlobalName("os", "system", "data.pkl", 0)
    yield _with(right, replace(right.wanted, globals=(*right.wanted.globals, name)))


@saboteur
def _a_name_lost(right: Right) -> Iterator[Right]:
    if right.wanted.globals:
        yield _with(right, replace(right.wanted, globals=right.wanted.globals[1:]))


@saboteur
def _another_role(right: Right) -> Iterator[Right]:
    if right.wanted.state_dicts:
        first, *rest = right.wanted.state_dicts
        yield _with(right, replace(right.wanted, state_dicts=(replace(first, role=Role.RNG), *rest)))


@saboteur
def _tensors_listed_in_another_order(right: Right) -> Iterator[Right]:
    if len(right.wanted.tensors) > 1:
        yield _with(right, replace(right.wanted, tensors=right.wanted.tensors[::-1]))


def lines() -> Iterator[str]:
    """The record: the name of each repair, and the saboteurs that find something to do in it."""
    for name in (*CASES, *EXAMPLES):
        with tempfile.TemporaryDirectory() as folder:
            right = Right.of(plan_of(name, Path(folder)))
            yield f"{name}: {' '.join(dict.fromkeys(each for each, _ in sabotages(right)))}\n"


if __name__ == "__main__":
    RECORD.write_text("".join(lines()), encoding="utf-8")
