"""Writes an edited copy of a legacy file: new pickles, and the storages as ranges of the original."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from weakref import WeakSet

from ckptdoctor.checkpoint import FileSource, NoteKind, Source, Storage
from ckptdoctor.edits import Convert, Repickle
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.errors import RefusedError, UnprovenError
from ckptdoctor.formats.advice import as_damaged
from ckptdoctor.formats.torch.legacy.read import (
    COUNT_BYTES,
    NAMES,
    LegacyStorages,
    Place,
    Stream,
    claims_of,
    read_stream,
)
from ckptdoctor.formats.torch.patch.new_nodes import from_plain
from ckptdoctor.formats.torch.patch.reconcile import reconcile
from ckptdoctor.formats.torch.patch.storage_plans import Numbering, ReadStorage, StoragePlan
from ckptdoctor.formats.torch.read import storages_in
from ckptdoctor.formats.torch.read.storages import claim_of
from ckptdoctor.formats.torch.read.values import items, text
from ckptdoctor.formats.torch.read.views import users_of_storages
from ckptdoctor.formats.torch.zip.layout import Item, archive
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.encode import encode, prove
from ckptdoctor.pickles.graph import Made, PersistentId, Pickle, Popped, Tuple, Value, nodes
from ckptdoctor.writing.checksums import checksums
from ckptdoctor.writing.recipe import Copy, Generated, Literal, Recipe, Segment

# notes of the storages with which a copy would be as broken as the original
_BROKEN = frozenset({NoteKind.TRUNCATED, NoteKind.STORAGE_MISSING, NoteKind.STORAGE_SIZE})


# sources of which a copy is wanted although storages are missing
_salvaged: WeakSet[Source] = WeakSet()


def write_what_is_left(source: Source) -> None:
    """From now on let the file be copied although it is cut off, as long as no missing storage is asked for."""
    _salvaged.add(source)


def write_copy(wanted: Wanted, source: Source) -> Recipe:
    """Return how to write the file so that it holds what is wanted.

    Raises UnprovenError when one of the pickles does not encode back to its own bytes, or when unpicklers disagree on
    it; RefusedError when that is impossible or storages are missing; DamagedError when the file cannot be read.
    """
    stream = proven(source)
    table = LegacyStorages(source, stream)
    broken = next((note for note in table.notes if note.kind in _BROKEN), None)
    if broken is not None and source not in _salvaged:
        raise as_damaged(broken.message, source.path, wanted.original)
    storages = storages_in(stream.saved, table, "")
    if any(isinstance(each, Convert) for each in wanted.edits):
        return converted(source, stream, table, storages, wanted)
    if any(isinstance(each, Repickle) for each in wanted.edits):
        raise RefusedError(
            "The old format is several pickles, which belong together; repair the file with --select C105 first, which "
            "makes it an archive."
        )
    plans = reconcile(stream.saved, storages, wanted, renumber=Numbering.KEPT).storages
    if any(plan.new for plan in plans):
        raise RefusedError(
            "Only an archive can get new storages; repair the file with --select C105 first, which makes it one."
        )
    if broken is not None:
        _require_whole_storages(plans, table)
    segments: list[Segment] = [Literal(_pickles(stream, table, plans))]
    claims = claims_of(stream)  # as the edits left them
    for plan in _in_file_order(plans, table):
        claim = claims.get(plan.key)
        segments += _storage(source, table.places, plan, claim.itemsize if claim is not None else None)
    if broken is None:
        segments.append(Copy(table.end, source.size - table.end))
    return Recipe(source.file, tuple(_joined(segments)))


def _require_whole_storages(plans: Sequence[StoragePlan], table: LegacyStorages) -> None:
    for plan in plans:
        place = table.places.get(plan.old.key)
        if place is None or place.length != plan.old.nbytes:
            raise RefusedError(f"Storage {plan.old.key} is not complete in the file.")


def proven(source: Source) -> Stream:
    """Return the pickles, once it is proven that each can be written again byte for byte. Raises UnprovenError."""
    stream = read_stream(source)
    for name, pickle in zip(NAMES, stream.pickles, strict=True):
        if pickle.ambiguities:
            odd = pickle.ambiguities[0]
            message = f"unpicklers may disagree on the {name} at byte {odd.offset:,}: {odd.message}"
            raise UnprovenError(f"Lossless repair cannot be proven, because {message}.", offset=odd.offset)
        prove(stream.data, pickle)
    return stream


def _pickles(stream: Stream, table: LegacyStorages, plans: Sequence[StoragePlan]) -> bytes:
    """Return everything before the storages; the list of their keys is rewritten when other storages follow."""
    keys = stream.pickles[4]
    names = [plan.key for plan in _in_file_order(plans, table)]
    listed = stream.data[keys.start : keys.end]
    if names != stream.keys:
        keys.root = from_plain(keys, names)
        listed = encode(keys)
    return stream.data[: stream.saved.start] + encode(stream.saved) + listed


def _in_file_order(plans: Iterable[StoragePlan], table: LegacyStorages) -> list[StoragePlan]:
    """Return the storages in the order of the original; new ones after those that they were made from."""
    order = {key: number for number, key in enumerate(table.places)}
    return sorted(plans, key=lambda plan: (order[plan.old.key], plan.key != plan.old.key))


def _storage(source: Source, places: Mapping[str, Place], plan: StoragePlan, itemsize: int | None) -> list[Segment]:
    """Return the element count and elements of one storage; ``itemsize`` is what the pickle counts its elements by."""
    place = places[plan.old.key]
    if plan.generate is None and plan.pieces in (((0, place.length),), ()) and plan.nbytes == place.length:
        return [Copy(place.offset - COUNT_BYTES, COUNT_BYTES + place.length)]
    itemsize = itemsize or plan.itemsize or (place.length // place.count if place.count else 1)
    return [Literal((plan.nbytes // itemsize).to_bytes(COUNT_BYTES, "little")), *elements(source, places, plan)]


def _joined(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Yield the same bytes, with copies that continue each other made one and empty ones left out."""
    pending: Copy | None = None
    for segment in segments:
        if isinstance(segment, Copy) and pending is not None and pending.offset + pending.length == segment.offset:
            pending = Copy(pending.offset, pending.length + segment.length)
            continue
        if pending is not None and pending.length:
            yield pending
        pending = segment if isinstance(segment, Copy) else None
        if pending is None:
            yield segment
    if pending is not None and pending.length:
        yield pending


# ---- turns a legacy file into the archive that ``torch.save`` writes since torch 1.6


# the folder in the archive that torch uses when it does not know the file's name
_FOLDER = "archive"


def converted(
    source: Source, stream: Stream, table: LegacyStorages, storages: Sequence[Storage], wanted: Wanted
) -> Recipe:
    """Return how to write what is wanted as an archive.

    Raises RefusedError when another container than "torch zip" is asked for, or something has no place in it.
    """
    other = next(
        (each.format for each in wanted.edits if isinstance(each, Convert) and each.format != "torch zip"), None
    )
    if other is not None:
        raise RefusedError(f"A legacy torch file can become a PyTorch .pt (zip) file, but not {other}.")
    prepare_for_zip(stream.saved)
    plans = reconcile(stream.saved, storages, wanted, renumber=Numbering.ALWAYS).storages
    data = [tuple(elements(source, table.places, plan)) for plan in plans]
    sums = cache(lambda: checksums(data, source.file))  # once the archive is written: a plan reads none of the values

    def record(at: int) -> Item:
        return Item(f"{_FOLDER}/data/{plans[at].key}", plans[at].nbytes, 0, data[at], lambda: sums()[at])

    return Recipe(source.file, archive(_FOLDER, encode(stream.saved), [record(at) for at in range(len(plans))]))


def elements(source: Source, places: Mapping[str, Place], plan: StoragePlan) -> list[Segment]:
    """Return the bytes of one storage, copied or made while writing."""
    if plan.data is not None:
        return [Literal(plan.data)]
    if plan.generate is not None:
        bases = {key: places[key].offset for key in plan.sources}
        return [Generated(plan.nbytes, _reopened(source.file, bases, plan.generate))]
    base = places[plan.old.key].offset
    return [Copy(base + offset, length) for offset, length in plan.pieces or ()]


def _reopened(
    path: str, bases: Mapping[str, int], generate: Callable[[ReadStorage], Iterator[bytes]]
) -> Callable[[], Iterator[bytes]]:
    """Return chunks from the file at ``path``, opened each time, because the plan's source may be closed then."""

    def produce() -> Iterator[bytes]:
        with FileSource(path) as source:
            yield from generate(lambda key, offset, length: source.read(bases[key] + offset, length))

    return produce


# ---- persistent ids of a legacy pickle become those of an archive


def prepare_for_zip(pickle: Pickle) -> None:
    """Storages lose their view metadata (the offsets of tensors take it in), classes the source kept next to them.

    Raises RefusedError for a view of a storage that was saved on its own.
    """
    for users in users_of_storages(nodes(pickle.root)).values():
        viewed = {id(view.reference) for view in users.views}
        for view in users.views:
            if view.claim.view is not None:
                view.arguments[1] = view.offset + view.claim.view[1]
        for reference in users.references:
            claim = claim_of(reference)
            if claim is not None and claim.view is not None and id(reference) not in viewed:
                raise RefusedError(f"A part of storage {claim.key} was saved on its own, which an archive cannot hold.")
    for node in list(nodes(pickle.root)):
        for values in _lists(node):
            values[:] = [_without_source(value) for value in values]
        if isinstance(node, Popped):
            node.result = _without_source(node.result)
        if type(node) is PersistentId:
            parts = items(node.id) or []
            if len(parts) == 6 and claim_of(node) is not None:
                node.id = Tuple(op.TUPLE, parts[:5], node.id.memo if isinstance(node.id, Tuple) else -1)
    pickle.root = _without_source(pickle.root)


def _lists(node: object) -> list[list[Value]]:
    """Return the lists in a node that hold values."""
    if isinstance(node, Made):
        return [node.items, *[step.payload for step in node.steps or ()]]
    if isinstance(node, Tuple):
        return [node.items]
    return [node.discarded] if isinstance(node, Popped) else []


def _without_source(value: Value) -> Value:
    """Return the class itself, for ``('module', class, file, source)``."""
    if type(value) is PersistentId:
        parts = items(value.id)
        if parts is not None and len(parts) == 4 and text(parts[0]) == "module":
            return parts[1]
    return value
