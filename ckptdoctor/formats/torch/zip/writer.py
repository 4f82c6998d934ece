"""Writes an edited copy: the pickle again, everything else by ranges of the original.

The copy is laid out exactly as ``torch.save`` would, because ``torch.load`` may compute where storages are instead of
looking (with ``map_location="meta"``, and with ``calculate_storage_offsets``) whenever a ``.format_version`` record
is there; where that layout cannot be kept, the record is left out. Checksums of copied data are carried over, never
computed again, so that damage stays visible.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import FileSource, NoteKind, Source, Storage
from ckptdoctor.checkpoint.progress import WORTH_A_THREAD, in_order
from ckptdoctor.edits import Cast, Compute, Dequantize, FuseNorm
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.errors import RefusedError, UnprovenError
from ckptdoctor.formats.advice import as_damaged, conversion, converted_first, salvaged_first
from ckptdoctor.formats.torch.patch.reconcile import reconcile
from ckptdoctor.formats.torch.patch.storage_plans import ReadStorage, StoragePlan
from ckptdoctor.formats.torch.read import storages_in
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.layout import (
    DEFAULT_ALIGNMENT,
    MAX_ALIGNMENT,
    Item,
    lay_out,
    lay_out_moved,
    new_item,
    word,
)
from ckptdoctor.formats.torch.zip.local_headers import CHUNK, check_readable, chunks
from ckptdoctor.formats.torch.zip.read import (
    ReadPickle,
    ZipStorages,
    bytes_in_front,
    decode_member,
    directory_of,
    pickle_bytes,
    pickle_record,
    read_word,
    taken_pickle,
    whole_number,
)
from ckptdoctor.formats.torch.zip.records import Directory, Record, ascii_lower, shown
from ckptdoctor.pickles.encode import encode, prove
from ckptdoctor.wording import plural
from ckptdoctor.writing.recipe import Copy, Generated, Literal, Recipe, Segment

if TYPE_CHECKING:  # importing it takes longer than most files need to be written
    from tempfile import SpooledTemporaryFile


def write_copy(wanted: Wanted, source: Source) -> Recipe:
    """Return how to write the archive so that it holds what is wanted.

    Raises UnprovenError when the pickle does not encode back to its own bytes, or when readers disagree about the
    archive or the pickle; RefusedError when that is impossible or the data it needs is missing or damaged; and
    DamagedError when the archive cannot be read.
    """
    directory = directory_of(source)
    require_one_reading(source, directory)
    record = pickle_record(directory)
    read = sound_pickle(source, record)
    data, pickle, storages = read.data, read.pickle, read.storages
    prove(data, pickle)
    if storages is None:
        table = ZipStorages(source.file, directory)
        storages = storages_in(pickle, table, shown(record.name))
        if table.notes and not directory.salvaged:
            raise as_damaged(table.notes[0].message, source.path, wanted.original)
    edited = reconcile(pickle, storages, wanted)
    big_endian = wanted.original.big_endian
    computed = any(isinstance(each, (Cast, Compute, Dequantize, FuseNorm)) for each in wanted.edits)
    if computed and big_endian:
        why = f"The values of {source.path} are big-endian, so they cannot be used in computations."
        raise RefusedError(f"{why} {converted_first(source.path)}")
    if big_endian and any(plan.new for plan in edited.storages):
        why = f"New storages would not have the byte order of the others in {source.path}."
        raise RefusedError(f"{why} {converted_first(source.path)}")
    new = encode(pickle) + data[pickle.end :]
    crc = zlib.crc32(new) if record.crc else 0  # where none was computed, none is: a lone one would mean nothing
    moved = _moved(source, directory, (record.name, new, crc), storages) if edited.plans is None else None
    if moved is not None:
        return Recipe(source.file, moved)
    head = Item(record.name, len(new), crc, (Literal(new),))
    old_keys = {storage.key for storage in storages}
    items, alignment = _items(source, directory, head, edited.storages, old_keys)
    return Recipe(source.file, bridged(lay_out(items, alignment), source))


def require_one_reading(source: Source, directory: Directory) -> None:
    """Raise UnprovenError or RefusedError where it is not certain what the archive holds."""
    if not directory.repairable:
        damage = (NoteKind.ZIP_DAMAGED, NoteKind.TRUNCATED)
        reason = next(each.message for each in directory.notes if each.kind in (NoteKind.ZIP_AMBIGUOUS, *damage))
        way = f"To write what torch reads: {conversion(source.path)}"
        if any(each.kind in damage for each in directory.notes):
            way = salvaged_first(source.path)
        why = "Lossless repair cannot be proven, because readers may disagree on the archive"
        raise UnprovenError(f"{why}: {reason}. {way}")
    lost = 0 if directory.salvaged else bytes_in_front(source, directory)
    if lost:
        why = f"{plural(lost, 'byte is', 'bytes are')} before the archive, which a copy would lose."
        raise RefusedError(f"{why} {converted_first(source.path)}")


def proven(source: Source, record: Record) -> ReadPickle:
    """Return the bytes and the graph of ``data.pkl``, once it is proven that one gives the other."""
    known = sound_pickle(source, record)
    prove(known.data, known.pickle)
    return known


def sound_pickle(source: Source, record: Record) -> ReadPickle:
    """Return them where all unpicklers agree on them. Raises UnprovenError for others, and RefusedError for damage."""
    name = shown(record.name)
    known = taken_pickle(source)
    if known is None:
        data, notes = pickle_bytes(source, record)
        if notes:
            raise RefusedError(f"{notes[0].message}; a repaired copy would hide that. Take another copy of the file.")
        known = ReadPickle(data, decode_member(data, record))
    pickle = known.pickle
    if pickle.ambiguities:
        odd = pickle.ambiguities[0]
        reason = f"unpicklers may disagree on {name} at byte {odd.offset:,}: {odd.message}"
        raise UnprovenError(f"Lossless repair cannot be proven, because {reason}.", offset=odd.offset, member=name)
    return known


def _items(
    source: Source, directory: Directory, head: Item, plans: Sequence[StoragePlan], old_keys: set[str]
) -> tuple[list[Item], int]:
    """Return every record of the copy in order, and the alignment: the original's order, the storages in one block."""
    alignment = _alignment(source, directory)
    numbered = directory.find(".format_version")
    computable = numbered is not None and alignment is not None and (not plans or plans[0].key == "0")
    places = {id(found) for key in old_keys if (found := directory.storage(key)) is not None}
    if not computable:
        plans = _in_original_order(plans, directory)
    items: list[Item] = []
    checked = set(_sound(source, directory, plans))
    block = [remade(source, directory, plan, checked) for plan in plans]
    taken = {ascii_lower(item.name) for item in block}
    behind = None if places else _behind_storages(directory)
    pickle = ascii_lower(head.name)
    for record in directory.records:
        if record is behind or id(record) in places:
            items += block
            block = []
        if id(record) in places:
            continue
        if ascii_lower(record.name) == pickle:
            items.append(head)
        elif record is numbered and not computable:
            continue
        elif ascii_lower(record.name) in taken:
            name = shown(record.name)
            raise RefusedError(f"The record {name}, which no tensor uses, has the name that a new storage needs.")
        else:
            items.append(copied(source, record))
    words = [word(directory.prefix, name, data) for name, data in directory.words]
    return [*items, *block, *words], alignment or DEFAULT_ALIGNMENT


def _alignment(source: Source, directory: Directory) -> int | None:
    """Return the alignment that the archive states, or torch's own where it states none; None: it is impossible."""
    if directory.find(".storage_alignment") is None:
        return DEFAULT_ALIGNMENT
    stated = whole_number(read_word(source, directory, ".storage_alignment"))
    return stated if stated is not None and 0 < stated <= MAX_ALIGNMENT else None


def _in_original_order(plans: Sequence[StoragePlan], directory: Directory) -> list[StoragePlan]:
    """Return the storages as the original orders them: before ``.format_version``, torch sorted them by name."""
    places = {ascii_lower(record.name): place for place, record in enumerate(directory.records)}
    folder = f"{directory.prefix}/data/"
    return sorted(plans, key=lambda plan: places.get(ascii_lower(folder + plan.old.key), len(places)))


def _behind_storages(directory: Directory) -> Record | None:
    """Return the record before which torch writes the storages: there were none, and now there are."""
    return directory.find("version")


def _moved(
    source: Source, directory: Directory, head: tuple[str, bytes, int], storages: Sequence[Storage]
) -> tuple[Segment, ...] | None:
    """Return the whole copy where everything after the pickle can move as one block, as in nearly every archive.

    None where records may have to change their order, or be rewritten.
    """
    records, alignment = directory.records, _alignment(source, directory)
    folder, names = f"{directory.prefix}/data/", [record.name for record in records]
    first = f"{folder}{storages[0].key}" if storages else ""
    if directory.salvaged or names[0] != head[0] or first not in names:
        return None
    begin = names.index(first)
    there = names[begin : begin + len(storages)]
    if len(there) < len(storages) or any(name != folder + each.key for name, each in zip(there, storages, strict=True)):
        return None
    if directory.find(".format_version") is not None and (alignment is None or storages[0].key != "0"):
        return None  # ``_items`` leaves a record out that says how places are computed
    return lay_out_moved(head, records[1:], alignment or DEFAULT_ALIGNMENT, _Near(source).read)


# ---- makes long range copies out of short ones: what is written between two copies often stands in the original too


# a longer literal between two copies is never the original's header or descriptor, and not worth comparing
_LONGEST = 1 << 17

# what is read at once to compare it
_WINDOW = 1 << 14


def bridged(segments: Sequence[Segment], source: Source) -> tuple[Segment, ...]:
    """Return the same output, with copies that continue each other made one.

    A shift by a multiple of the alignment leaves every header and descriptor between two storages as it was, so that
    a file with a longer pickle is mostly one range of the original.
    """
    merged: list[Segment] = []
    near = _Near(source)
    begin = stop = 0
    open_copy: Copy | None = None  # the copy that may go on: by now from ``begin`` to ``stop``
    between: Literal | None = None  # what is written behind it

    for segment in segments:
        if isinstance(segment, Copy) and open_copy is not None:
            data = b"" if between is None else between.data
            if segment.offset - stop == len(data) <= _LONGEST and near.read(stop, len(data)) == data:
                stop, between = segment.offset + segment.length, None
                continue
        elif isinstance(segment, Literal) and open_copy is not None and between is None:
            between = segment
            continue
        if open_copy is not None:
            merged += _ended(open_copy, begin, stop, between)
            open_copy = between = None
        if isinstance(segment, Copy):
            open_copy, begin, stop = segment, segment.offset, segment.offset + segment.length
        else:
            merged.append(segment)
    if open_copy is not None:
        merged += _ended(open_copy, begin, stop, between)
    return tuple(merged)


def _ended(first: Copy, begin: int, stop: int, between: Literal | None) -> list[Segment]:
    """Return a copy that goes on no further, and what is written behind it."""
    copy = first if stop - begin == first.length else Copy(begin, stop - begin)
    return [copy] if between is None else [copy, between]


class _Near:
    """Reads short ranges one after another, with one system call for many that are close together."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._start = 0
        self._data = b""

    def read(self, at: int, length: int) -> bytes:
        """Return these bytes of the file."""
        begin = at - self._start
        if begin < 0 or begin + length > len(self._data):
            self._start, begin = at, 0
            self._data = self._source.read(at, max(length, min(_WINDOW, self._source.size - at)))
        return self._data[begin : begin + length]


# ---- the records of a rewritten archive: copied as they are, inflated, cut down, or made anew


def copied(source: Source, record: Record, name: str | None = None) -> Item:
    """Return the same data under the same or a new name, always stored: torch maps deflated records to garbage.

    Raises DamagedError when the record is encrypted, or does not inflate.
    """
    check_readable(record)
    data: Segment = Copy(record.data_offset, record.size)
    if record.method != structs.STORED:
        for _ in chunks(source, record):  # damage shows now, not when half the copy is written
            pass
        data = Generated(record.size, _reopened(source.file, lambda again: chunks(again, record)))
    return Item(record.name if name is None else name, record.size, record.crc, (data,))


def remade(source: Source, directory: Directory, plan: StoragePlan, sound: set[str] | None = None) -> Item:
    """Return the record of one storage of the output. ``sound`` gathers the names of records that were checked.

    Raises RefusedError when its bytes cannot be trusted, DamagedError when they cannot be read.
    """
    name = f"{directory.prefix}/data/{plan.key}"
    if plan.new:
        return new_item(name, plan.nbytes, (_new(source, plan),), source.file, _summed(directory))
    record = _found(directory, plan.old.key)
    if is_untouched(plan, record):
        return copied(source, record, name)
    records = {key: _found(directory, key) for key in plan.sources or (plan.old.key,)}
    for each in records.values():
        if sound is None or each.name not in sound:
            _require_sound(source, each)
            if sound is not None:
                sound.add(each.name)
    summed = any(each.crc for each in records.values())
    return new_item(name, plan.nbytes, _pieces(source, records, plan), source.file, summed)


def _sound(source: Source, directory: Directory, plans: Sequence[StoragePlan]) -> Iterator[str]:
    """Yield the names of large records that others are made of, which are checked in threads."""
    if not isinstance(source, FileSource):  # threads may read it at once
        return
    keys = dict.fromkeys([key for plan in plans if plan.generate is not None for key in plan.sources])
    large = [record for key in keys if (record := _found(directory, key)).size >= WORTH_A_THREAD]

    def named(record: Record) -> str:
        _require_sound(source, record)
        return record.name

    yield from in_order(named, large)


def _found(directory: Directory, key: str) -> Record:
    record = directory.storage(key)
    if record is None:
        raise RefusedError(f"Storage {shown(key)} has no record in the archive.")
    if record.method == structs.STORED and record.compressed != record.size:
        raise RefusedError(f"The record of storage {shown(key)} is cut off.")
    return record


def _new(source: Source, plan: StoragePlan) -> Segment:
    """Return bytes that come from no record of the archive."""
    if plan.data is not None:
        return Literal(plan.data)
    generate = plan.generate
    assert generate is not None
    return Generated(plan.nbytes, _reopened(source.file, lambda _: generate(_nothing)))


def _nothing(key: str, offset: int, length: int) -> bytes:
    raise AssertionError(f"{length} bytes at {offset} of {key} were requested, which should never be read")


def _require_sound(source: Source, record: Record) -> None:
    """Raise RefusedError for a record whose damage would be hidden if it was taken apart."""
    check_readable(record)
    if record.crc and _checksum(chunks(source, record)) != record.crc:
        raise RefusedError(
            f"{shown(record.name)} does not match its checksum, which this edit would hide; use another copy."
        )


def _summed(directory: Directory) -> bool:
    """Return whether the archive has checksums: where it has none, a lone one would mean nothing."""
    return any(record.crc for record in directory.records)


def is_untouched(plan: StoragePlan, record: Record) -> bool:
    """Return whether the storage keeps all bytes of its record."""
    if plan.generate is not None:
        return False
    return plan.pieces is None or plan.pieces == (((0, record.size),) if record.size else ())


def _pieces(source: Source, records: dict[str, Record], plan: StoragePlan) -> tuple[Segment, ...]:
    key, pieces, generate = plan.old.key, plan.pieces or (), plan.generate
    if generate is None and records[key].method == structs.STORED:
        return tuple([Copy(records[key].data_offset + offset, length) for offset, length in pieces])

    def made(again: Source) -> Iterator[bytes]:
        with ExitStack() as stack:
            read = _reader(again, records, stack)
            if generate is not None:
                yield from generate(read)
                return
            for offset, length in pieces:
                yield from (read(key, offset + at, min(CHUNK, length - at)) for at in range(0, length, CHUNK))

    return (Generated(plan.nbytes, _reopened(source.file, made)),)


def _reader(source: Source, records: dict[str, Record], stack: ExitStack) -> ReadStorage:
    """Read ``length`` bytes at ``offset`` of one of some records; one that is compressed is inflated first, once."""
    unpacked: dict[str, SpooledTemporaryFile[bytes]] = {}

    def read(key: str, offset: int, length: int) -> bytes:
        if records[key].method == structs.STORED:
            return source.read(records[key].data_offset + offset, length)
        if key not in unpacked:
            from tempfile import SpooledTemporaryFile

            unpacked[key] = stack.enter_context(SpooledTemporaryFile(CHUNK))  # noqa: SIM115  # the stack closes it
            unpacked[key].writelines(chunks(source, records[key]))
        unpacked[key].seek(offset)
        return unpacked[key].read(length)

    return read


def _reopened(path: str, make: Callable[[Source], Iterator[bytes]]) -> Callable[[], Iterator[bytes]]:
    """Return chunks from the file at ``path``, opened each time, because the plan's source may be closed then."""

    def produce() -> Iterator[bytes]:
        with FileSource(path) as source:
            yield from make(source)

    return produce


def _checksum(pieces: Iterator[bytes]) -> int:
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    return crc
