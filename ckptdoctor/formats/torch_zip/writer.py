"""Writes an edited copy: the pickle anew, everything else by ranges of the original.

The copy is laid out exactly as ``torch.save`` would, because ``torch.load`` may compute where storages lie instead of
looking (with ``map_location="meta"``, and with ``calculate_storage_offsets``) whenever a ``.format_version`` record
is there; where that layout cannot be kept, the record is left out. Checksums of copied data are carried over, never
computed again, so that damage stays visible.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from ckptdoctor.checkpoint import Checkpoint, NoteKind, Source
from ckptdoctor.edits import Cast, Edit
from ckptdoctor.edits.kinds import Compute, Dequantize, FuseNorm
from ckptdoctor.errors import RefusedError, UnprovenError
from ckptdoctor.formats.torch_objects import StoragePlan, edit, interpret
from ckptdoctor.formats.torch_zip.layout import DEFAULT_ALIGNMENT, MAX_ALIGNMENT, Item, lay_out
from ckptdoctor.formats.torch_zip.merge import bridged
from ckptdoctor.formats.torch_zip.read import (
    decode_member,
    directory_of,
    pickle_bytes,
    pickle_record,
    read_word,
    whole_number,
)
from ckptdoctor.formats.torch_zip.record import Directory, Record, ascii_lower, shown
from ckptdoctor.formats.torch_zip.remake import copied, remade
from ckptdoctor.formats.torch_zip.storages import ZipStorages
from ckptdoctor.pickles import Pickle, encode, prove
from ckptdoctor.wording import plural
from ckptdoctor.writing.recipe import Literal, Recipe


def rewrite(source: Source, checkpoint: Checkpoint, edits: Sequence[Edit]) -> Recipe:
    """How to write the archive with these edits applied, one after another.

    Raises UnprovenError when the pickle does not encode back to its own bytes, or when readers disagree about the
    archive or the pickle; RefusedError when an edit is impossible or the data it needs is missing or damaged; and
    DamagedError when the archive cannot be read.
    """
    directory = directory_of(source)
    _insist_on_one_reading(source, directory)
    record = pickle_record(directory)
    data, pickle = _proven(source, record)
    table = ZipStorages(source.file, directory)
    contents = interpret(pickle, table, shown(record.name), whole=True)
    if table.notes and not directory.salvaged:
        raise RefusedError(f"A copy would be as broken as the original: {table.notes[0].message}.")
    plans = edit(pickle, contents, edits).storages
    computed = any(isinstance(each, (Cast, Compute, Dequantize, FuseNorm)) for each in edits)
    if computed and checkpoint.big_endian:
        raise RefusedError("The values are big-endian, and are not computed with; convert the file first.")
    if any(plan.new for plan in plans) and checkpoint.big_endian:
        raise RefusedError("New storages would have another byte order than the others of this archive.")
    new = encode(pickle) + data[pickle.end :]
    crc = zlib.crc32(new) if record.crc else 0  # where none was computed, none is: a lone one would mean nothing
    head = Item(record.name, len(new), crc, (Literal(new),))
    old_keys = {storage.key for storage in contents.storages}
    items, alignment = _items(source, directory, head, plans, old_keys)
    return Recipe(source.file, bridged(lay_out(items, alignment), source))


def _insist_on_one_reading(source: Source, directory: Directory) -> None:
    if not directory.repairable:
        trouble = (NoteKind.ZIP_AMBIGUOUS, NoteKind.ZIP_DAMAGED, NoteKind.TRUNCATED)
        reason = next(note.message for note in directory.notes if note.kind in trouble)
        raise UnprovenError(f"Lossless repair cannot be proven, because readers may disagree on the archive: {reason}.")
    first = min(record.header_offset for record in directory.records)
    if first:
        raise RefusedError(
            f"{plural(first, 'byte stands', 'bytes stand')} before the archive, which a copy would lose; remove "
            "what stands there first."
        )


def _proven(source: Source, record: Record) -> tuple[bytes, Pickle]:
    """The bytes and the graph of ``data.pkl``, once it is proven that one gives the other and that both are sound."""
    name = shown(record.name)
    data, notes = pickle_bytes(source, record)
    if notes:
        raise RefusedError(f"{notes[0].message}; a repaired copy would hide that. Take another copy of the file.")
    pickle = decode_member(data, record)
    if pickle.ambiguities:
        odd = pickle.ambiguities[0]
        reason = f"unpicklers may disagree on {name} at byte {odd.offset:,}: {odd.message}"
        raise UnprovenError(f"Lossless repair cannot be proven, because {reason}.", offset=odd.offset, member=name)
    prove(data, pickle)
    return data, pickle


def _items(
    source: Source, directory: Directory, head: Item, plans: Sequence[StoragePlan], old_keys: set[str]
) -> tuple[list[Item], int]:
    """Every record of the copy in order, and the alignment: the original's order, the storages in one block."""
    alignment = whole_number(read_word(source, directory, ".storage_alignment"))
    if directory.find(".storage_alignment") is None:
        alignment = DEFAULT_ALIGNMENT
    sound = alignment is not None and 0 < alignment <= MAX_ALIGNMENT
    numbered = directory.find(".format_version")
    computable = numbered is not None and sound and (not plans or plans[0].key == "0")
    storages = {name: found for key in old_keys if (found := directory.find(name := f"data/{key}"))}
    places = {id(record) for record in storages.values()}
    if not computable:
        plans = _in_original_order(plans, directory)
    items: list[Item] = []
    checked: set[str] = set()
    block = [remade(source, directory, plan, checked) for plan in plans]
    taken = {ascii_lower(item.name) for item in block}
    behind = None if places else _behind_storages(directory)
    for record in directory.records:
        if record is behind:
            items += block
            block = []
        if ascii_lower(record.name) == ascii_lower(head.name):
            items.append(head)
        elif id(record) in places:
            items += block
            block = []
        elif record is numbered and not computable:
            continue
        elif ascii_lower(record.name) in taken:
            name = shown(record.name)
            raise RefusedError(f"The record {name}, which no tensor uses, is in the way of a storage's new number.")
        else:
            items.append(copied(source, record))
    words = [_word(directory, name, word) for name, word in directory.words]
    return [*items, *block, *words], alignment if sound and alignment else DEFAULT_ALIGNMENT


def _word(directory: Directory, name: str, word: bytes) -> Item:
    return Item(f"{directory.prefix}/{name}", len(word), zlib.crc32(word), (Literal(word),))


def _in_original_order(plans: Sequence[StoragePlan], directory: Directory) -> list[StoragePlan]:
    """The storages as the original orders them: before ``.format_version``, torch sorted them by name."""
    places = {ascii_lower(record.name): place for place, record in enumerate(directory.records)}
    folder = f"{directory.prefix}/data/"
    return sorted(plans, key=lambda plan: places.get(ascii_lower(folder + plan.old.key), len(places)))


def _behind_storages(directory: Directory) -> Record | None:
    """The record before which torch writes the storages: there were none, and now there are."""
    return directory.find("version")
