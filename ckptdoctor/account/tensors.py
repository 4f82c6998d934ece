"""Follows edits of storages and tensors: which bytes of which storage every tensor shows afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from struct import pack
from typing import Union

from ckptdoctor.account.contents import Account, rebuilt
from ckptdoctor.account.places import Box, Place, UnaccountedError, box_at, noun_of, place_at, tensor_places
from ckptdoctor.account.shown import Computed, Inline, Refolded, Scales, Shown, Store, all_of, joined, span, turned
from ckptdoctor.checkpoint import DType, KeyPath, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride, is_contiguous
from ckptdoctor.edits import (
    Cast,
    Clone,
    Compact,
    Compute,
    Densify,
    Dequantize,
    Fill,
    Fuse,
    FuseNorm,
    MakeContiguous,
    MakeTensors,
    MoveToCpu,
    Reshape,
    Retag,
    Split,
    Tie,
    Transpose,
    Unwrap,
)
from ckptdoctor.edits.computing import LOW_RANK, TURNED
from ckptdoctor.edits.elements import Calculated, Converted, Dequantized, Normed, Scattered
from ckptdoctor.edits.quantization import SAME
from ckptdoctor.edits.tensors import gone_keys, place_of, sources, with_new
from ckptdoctor.facts import devices
from ckptdoctor.facts.devices import MOVERS, OF_ARRAYS, OF_EMPTY_ARRAYS, UTILS
from ckptdoctor.facts.numpy_values import held_values
from ckptdoctor.noun import replace

Making = Union[Split, Fuse, FuseNorm, Dequantize, Compute, Tie]
MAKING = (Split, Fuse, FuseNorm, Dequantize, Compute, Tie)


def retag(account: Account, edit: Retag) -> None:
    """Change device tags: a tensor with the same tag as its storage follows it."""
    account.retaggings.append(edit)


def compact(account: Account, edit: Compact) -> None:
    """Shrink storages to the bytes that tensors view."""
    wanted, spans = set(edit.storages), dict[str, list[tuple[int, int]]]()
    unknown = not wanted <= account.stores.keys()  # storages that edits made have names of their own there
    for place in tensor_places(account.root):
        for view in _views(place.holds):
            key = view.storage.key if view.storage is not None else ""
            if key in wanted or (unknown and key.startswith("\0")):
                spans.setdefault(key, []).append(span(view))
    for key, found in spans.items():
        account.stores[key].shrink(tuple(_united(found)))


def make_contiguous(account: Account, edit: MakeContiguous | Clone) -> None:
    """Give tensors storages of their own; equal views share theirs, unless they are to be alone."""
    for path, (place, tensor) in zip(dict.fromkeys(edit.paths), account.tensors_at(edit.paths), strict=True):
        place.holds = account.own(tensor, account.shown(tensor), path if isinstance(edit, Clone) else None)


def densify(account: Account, edit: Densify) -> None:
    """Put dense tensors in the place of sparse ones."""
    for place, tensor in account.tensors_at(edit.paths):
        last = tensor.parts[-1].storage if tensor.parts else None
        if last is None:
            raise UnaccountedError(f"an edit makes {tensor.key} dense, which has no values of its own")
        parts = tuple([account.shown(part) for part in tensor.parts])
        kinds = tuple([part.dtype.name for part in tensor.parts[:-1]])
        holds = Computed(Scattered, parts, (("layout", tensor.layout), ("kinds", kinds)), tensor.shape)
        dense = account.own(replace(tensor, storage=last), holds)
        rebuild = rebuilt(tensor.dtype) if tensor.rebuild == f"{UTILS}sparse_tensor" else tensor.rebuild
        place.holds = replace(dense, layout="strided", parts=(), details=(), rebuild=rebuild)


def cast(account: Account, edit: Cast) -> None:
    """Change the dtype: on one storage as before where all of its tensors get it, else each on its own."""
    chosen = [(place, each) for place, each in account.tensors_at(edit.paths) if each.dtype.name != edit.dtype]
    users: dict[str, int] = {}
    for place in tensor_places(account.root):
        for view in _views(place.holds):
            key = view.storage.key if view.storage is not None else ""
            users[key] = users.get(key, 0) + 1
    cast: dict[str, list[Tensor]] = {}
    for _, tensor in chosen:
        cast.setdefault(tensor.storage.key if tensor.storage is not None else "", []).append(tensor)
    for place, tensor in chosen:
        shown, old = account.shown(tensor), tensor.storage
        assert old is not None
        same = cast[old.key]
        kind, width = tensor.dtype.name, tensor.dtype.bits // 8
        together = len(same) == users[old.key] and len({each.dtype.name for each in same}) == 1
        facts = (("kind", kind), ("dtype", edit.dtype), ("exact", edit.exact))
        if not together or shown.store.nbytes % width:
            place.holds = account.own(tensor, Computed(Converted, (shown,), facts, tensor.shape), dtype=edit.dtype)
            continue
        row = all_of(shown.store, width)
        made = account.own(tensor, Computed(Converted, (row,), facts, row.shape), dtype=edit.dtype)
        offset = 0 if 0 in tensor.shape and shown.store.kept is not None else shown.store.place_of(shown.start) // width
        offset = tensor.offset if shown.store.kept is None else offset
        place.holds = replace(tensor, dtype=made.dtype, storage=made.storage, offset=offset)


def move_to_cpu(account: Account, edit: MoveToCpu) -> None:
    """Leave tensors that loading would move where their values are, without the names of their arrays."""
    account.names_go |= OF_ARRAYS | OF_EMPTY_ARRAYS
    for place in tensor_places(account.root):
        if isinstance(place.holds, Tensor):
            place.holds = _on_cpu(account, place.holds, edit)


def _on_cpu(account: Account, tensor: Tensor, edit: MoveToCpu) -> Tensor:
    if tensor.parts:
        tensor = replace(tensor, parts=tuple([_on_cpu(account, part, edit) for part in tensor.parts]))
    there = tensor.storage is not None or bool(tensor.parts) or tensor.values is not None
    if not tensor.moved or not there or (edit.devices is not None and tensor.device not in edit.devices):
        return tensor
    rebuild = devices.on_cpu(tensor) if tensor.rebuild in MOVERS else tensor.rebuild
    if tensor.values is None:
        place = tensor.storage.device if tensor.storage is not None else tensor.parts[0].device
        return replace(tensor, device=place, rebuild=rebuild)
    width = tensor.dtype.bits // 8
    holds = Inline(tensor.values, width, (len(tensor.values) // width,), (1,))
    mark = (tensor.dtype.name, id(tensor.values))  # tensors of one array hold one object, and share its storage
    key = account.made.setdefault(mark, f"\0{len(account.made)}")
    storage = Storage(key, len(tensor.values), tensor.dtype, "cpu", None)
    account.stores.setdefault(key, Store(storage, holds, len(account.retaggings)))
    return replace(tensor, storage=account.stores[key].noun, device="cpu", rebuild=rebuild, values=None)


def unwrap(account: Account, edit: Unwrap) -> None:
    """Put what wrappers wrap in their place."""
    for place in tensor_places(account.root):
        if isinstance(place.holds, Tensor) and place.holds.subclass in edit.classes:
            if len(place.holds.parts) != 1:
                raise UnaccountedError(f"an edit unwraps {place.holds.key}, which does not consist of one tensor")
            place.holds = place.holds.parts[0]
    account.gone_storages |= set(edit.storages)


def make_tensors(account: Account, edit: MakeTensors) -> None:
    """Put a tensor in the place of each array."""
    for path in edit.paths:
        place = place_at(account.root, path)
        array = held_values(noun_of(place.holds))
        if array is None:
            raise UnaccountedError(f"an edit takes {'/'.join(map(str, path))} for an array, which would be lost")
        width = array.dtype.bits // 8
        holds = Inline(array.values, width, (len(array.values) // width,), (1,))
        storage = account.new_storage("cpu", len(array.values), array.dtype.name, holds, path)
        place.holds = Tensor((), array.dtype, array.shape, array.stride, storage, rebuild=rebuilt(array.dtype))


def reshape(account: Account, edit: Reshape) -> None:
    """Show the same elements in C order with another shape: on its storage where they already have that order."""
    ((place, tensor),) = account.tensors_at([edit.path])
    if prod(edit.shape) != prod(tensor.shape):
        raise UnaccountedError(f"an edit gives {tensor.key} a shape with more or fewer elements")
    if is_contiguous(tensor):
        place.holds = replace(tensor, shape=edit.shape, stride=contiguous_stride(edit.shape))
    else:
        place.holds = account.own(tensor, Refolded(account.shown(tensor), edit.shape))


def transpose(account: Account, edit: Transpose) -> None:
    """Put the dimensions in another order, on a storage of its own."""
    ((place, tensor),) = account.tensors_at([edit.path])
    place.holds = account.own(tensor, turned(account.shown(tensor), edit.dims))


def make(account: Account, edits: Iterable[Making]) -> None:
    """Make tensors of state dicts out of others: all are taken, then all go, then all come."""
    found = []
    for edit in edits:
        box = box_at(account.root, place_of(edit))
        made = list(_made_of(account, edit, [tensor for _, tensor in account.tensors_at(sources(edit))]))
        old = gone_keys(edit) or [str(path[-1]) for path in sources(edit)]
        found.append((edit, box, made, [place_at(account.root, (*place_of(edit), key)) for key in old]))
    gone: dict[int, tuple[Box, set[int]]] = {}
    come: dict[int, tuple[Box, list[Place]]] = {}
    account.ranks += 1  # what comes later stands nearer to what it was made of
    count = 0
    for edit, box, made, places in found:
        first = min([each.rank for each in places])
        behind = [Place(key, each, (*first, -account.ranks, count + at)) for at, (key, each) in enumerate(made)]
        count += len(made)
        come.setdefault(id(box), (box, []))[1].extend(behind)
        taken = set() if isinstance(edit, Tie) else {id(each) for each in places}
        gone.setdefault(id(box), (box, set()))[1].update(taken)
    for box, them in gone.values():
        box.without(them)
    for box, them_too in come.values():
        box.entries = sorted([*box.entries, *them_too], key=lambda place: place.rank)


def _made_of(account: Account, edit: Making, given: list[Tensor]) -> Iterator[tuple[str, Tensor]]:
    first = given[0]
    if isinstance(edit, Tie):
        alone = account.format == "safetensors"  # which has no views
        yield edit.key, account.own(first, account.shown(first), edit.key) if alone else first
    elif isinstance(edit, Split):
        whole = account.shown(first)
        for key in dict.fromkeys([key for key, _, _ in edit.parts]):
            order = tuple([(0, start, stop) for name, start, stop in edit.parts if name == key])
            yield key, account.own(first, joined((whole,), edit.dim, order))
    elif isinstance(edit, Fuse):
        every = tuple([(number, 0, each.shape[edit.dim]) for number, each in enumerate(given)])
        yield edit.key, account.own(first, joined(tuple(map(account.shown, given)), edit.dim, edit.order or every))
    elif isinstance(edit, FuseNorm):
        facts = (("norm", edit.norm), ("dim", edit.dim), ("dtype", first.dtype.name))
        yield edit.key, account.own(first, Computed(Normed, tuple(map(account.shown, given)), facts, first.shape))
    else:
        yield edit.key, _computed(account, edit, [each for one in given for each in (one, *one.parts)])


def _computed(account: Account, edit: Dequantize | Compute, given: list[Tensor]) -> Tensor:
    parts, kinds = list(map(account.shown, given)), tuple([each.dtype.name for each in given])
    shape, like = given[0].shape, given[0].storage or given[0].device
    if isinstance(edit, Dequantize) and edit.scheme == SAME:
        return account.fresh(edit.dtype, like, parts[0])
    if isinstance(edit, Dequantize):
        shape = edit.shape if edit.shape is not None else shape
        scales = Scales(edit.scheme, edit.block, shape, prod(given[1].shape) if len(given) > 1 else 0)
        how = (("scheme", edit.scheme), ("affine", edit.affine), ("dtype", edit.dtype), ("kinds", kinds))
        return account.fresh(edit.dtype, like, Computed(Dequantized, tuple(parts), (*how, ("runs", scales)), shape))
    every: list[Shown] = [*parts]
    for _, view in edit.beside:
        every.append(Inline(view.held, view.width, view.shape, view.stride, view.start))
    kinds = (*kinds, *[kind for kind, _ in edit.beside])
    facts = (("form", edit.form), ("numbers", edit.numbers), ("dtype", edit.dtype), ("kinds", kinds))
    if edit.form in (LOW_RANK, TURNED):
        every = [every[0], *_factors(every[1], every[2], edit.form == TURNED)]
    return account.fresh(edit.dtype, like, Computed(Calculated, tuple(every), facts, shape))


def fill(account: Account, edits: list[Fill]) -> None:
    """Put in new tensors with one number everywhere: those that follow each other at once."""
    by_place: dict[KeyPath, list[Fill]] = {}
    for edit in edits:
        by_place.setdefault(edit.path[:-1], []).append(edit)
    for path, fills in by_place.items():
        box = box_at(account.root, path)
        keys = [each.step for each in box.entries if isinstance(each.step, str)]
        new: dict[str, Tensor] = {}
        for edit in fills:
            element = _element(edit.value, BY_NAME[edit.dtype])
            holds = Inline(element, len(element), edit.shape, (0,) * len(edit.shape))
            new[str(edit.path[-1])] = account.fresh(edit.dtype, edit.device, holds, edit.path)
        last: tuple[int, ...] = (-1,)
        entries = list(box.entries)
        ranks = {each.step: each.rank for each in entries}
        account.ranks += 1
        for number, key in enumerate(with_new(keys, new)):
            if key in new:
                entries.append(Place(key, new[key], (*last, -account.ranks, number)))
            else:
                last = ranks[key]
        box.entries = sorted(entries, key=lambda place: place.rank)


def _views(thing: object) -> Iterator[Tensor]:
    """Yield a tensor and those that it is made of, as far as they have bytes of their own."""
    if isinstance(thing, Tensor):
        if thing.storage is not None:
            yield thing
        for part in thing.parts:
            yield from _views(part)


def _element(value: bool | int | float, dtype: DType) -> bytes:
    """Return the bytes of one element; of a float8, every one with a mantissa has its zero at 0."""
    if dtype.kind in ("int", "uint", "bool"):
        return int(value).to_bytes(dtype.bits // 8, "little", signed=dtype.kind == "int")
    if dtype.name == "bfloat16":
        return pack("<f", value)[2:]
    one = dtype.bits // (2 if dtype.kind == "complex" else 1)
    code = {64: "d", 32: "f", 16: "e"}.get(one)
    if code is None:
        return bytes(dtype.bits // 8)
    return pack(f"<{code}", value) + (pack(f"<{code}", 0.0) if dtype.kind == "complex" else b"")


def _united(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges (first byte, length) that the spans cover together."""
    ends: list[list[int]] = []
    for start, stop in sorted([each for each in spans if each[0] < each[1]]):
        if ends and start <= ends[-1][1]:
            ends[-1][1] = max(ends[-1][1], stop)
        else:
            ends.append([start, stop])
    for start, stop in ends:
        yield start, stop - start


def _factors(first: Shown, second: Shown, transposed: bool) -> tuple[Shown, Shown]:
    """Return the left and the right matrix of a product: A and B of LoRA are in the file in the order right, left."""
    right, left = _matrix(first), _matrix(second)
    return (turned(right, (1, 0)), turned(left, (1, 0))) if transposed else (left, right)


def _matrix(shown: Shown) -> Shown:
    shape = (shown.shape[0], prod(shown.shape[1:]))
    return shown if shape == shown.shape else Refolded(shown, shape)
