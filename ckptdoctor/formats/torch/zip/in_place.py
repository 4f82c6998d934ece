"""Writes the pickle of an archive again in the file itself: every record of a storage stays where it is.

A pickle that fits goes over the old one, with the same end and more padding in front of it. A longer one goes where the
directory was, and the directory follows it; the old pickle stays as bytes that nothing refers to. Both are read by
torch plainly, mapped, on meta, and with offsets that it computes: these begin at the first storage.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Source, Storage
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.formats.torch.patch.reconcile import reconcile
from ckptdoctor.formats.torch.patch.storage_plans import Numbering, StoragePlan
from ckptdoctor.formats.torch.read import storages_in
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.central_directory import find_end
from ckptdoctor.formats.torch.zip.layout import (
    DEFAULT_ALIGNMENT,
    Item,
    central_header,
    descriptor,
    end_of,
    local_header,
)
from ckptdoctor.formats.torch.zip.read import ZipStorages, directory_of, pickle_record
from ckptdoctor.formats.torch.zip.records import Directory, Record, Remarks, raw_name, shown
from ckptdoctor.formats.torch.zip.writer import is_untouched, proven, require_one_reading
from ckptdoctor.inplace.change import NotInPlaceError
from ckptdoctor.pickles.encode import encode
from ckptdoctor.writing.recipe import Copy, Literal, Recipe, Segment

# the extra field that pads a header holds no more than this
_MOST_PADDING = structs.MAX16 - structs.EXTRA.size


def write_in_place(wanted: Wanted, source: Source) -> Recipe:
    """Return how to write the archive with every storage where it is.

    Raises NotInPlaceError where other bytes of tensors are wanted, and what ``writer.write_copy`` raises.
    """
    directory = directory_of(source)
    require_one_reading(source, directory)
    record = pickle_record(directory)
    read = proven(source, record)
    storages = read.storages
    if storages is None:
        table = ZipStorages(source.file, directory)
        storages = storages_in(read.pickle, table, shown(record.name))
        if table.notes:
            raise NotInPlaceError(f"it is damaged ({table.notes[0].message})")
    plans = reconcile(read.pickle, storages, wanted, renumber=Numbering.KEPT).storages
    _require_all_stay(directory, storages, plans)
    new = encode(read.pickle) + read.data[read.pickle.end :]
    item = Item(record.name, len(new), zlib.crc32(new) if record.crc else 0, (Literal(new),))
    end = find_end(source, Remarks())
    if directory.end != source.size or end.stop != source.size or end.shift:
        raise NotInPlaceError("bytes follow the end of the archive")
    dropped = None if _is_computable(directory, plans) else directory.find(".format_version")
    fitting = _over_the_old(record, item)
    if fitting is not None:
        at, begin = end.offset, record.header_offset
        behind = begin + len(fitting)
        segments: list[Segment] = [Copy(0, begin), Literal(fitting), Copy(behind, at - behind)]
    else:
        old_end = record.end + len(descriptor(record.size, record.header_offset, 0))
        begin = record.header_offset if old_end == end.offset else end.offset
        head = local_header(item.name, item.size, begin, DEFAULT_ALIGNMENT)
        appended = head + new + descriptor(item.size, begin, item.crc)
        at = begin + len(appended)
        segments = [Copy(0, begin), Literal(appended)]
    entries = list(_entries(source.read(end.offset, end.size), directory, record, item, begin, dropped))
    listed = b"".join(entries)
    segments.append(Literal(listed + end_of(len(entries), len(listed), at)))
    return Recipe(source.file, tuple(segments))


def _require_all_stay(directory: Directory, storages: Sequence[Storage], plans: Sequence[StoragePlan]) -> None:
    """Raise NotInPlaceError unless every storage keeps its name and its bytes, and some tensor has it."""
    for plan in plans:
        record = None if plan.new else directory.storage(plan.old.key)
        if record is None or plan.key != plan.old.key or not is_untouched(plan, record):
            raise NotInPlaceError("bytes of tensors would be written, not only names")
        if record.method != structs.STORED:
            raise NotInPlaceError("the records of the archive are compressed")
    left = {each.key for each in storages} - {plan.old.key for plan in plans}
    if left:
        raise NotInPlaceError("tensors are left out, whose bytes would stay in the file")


def _is_computable(directory: Directory, plans: Sequence[StoragePlan]) -> bool:
    """Return whether torch may compute the offsets of storages: they follow each other in the order of first use."""
    if directory.find(".format_version") is None or not plans:
        return True
    places = [found.data_offset for plan in plans if (found := directory.storage(plan.key)) is not None]
    return plans[0].key == "0" and places == sorted(places)


def _over_the_old(record: Record, item: Item) -> bytes | None:
    """Return header, data and descriptor that take as many bytes as the old ones; None where they do not fit."""
    usual = record.method == structs.STORED and record.flags & structs.HAS_DESCRIPTOR
    raw, at = raw_name(record.name), record.header_offset
    if not usual or not item.size or max(item.size, record.size, at) >= structs.MAX32:
        return None
    padding = record.end - item.size - at - structs.LOCAL.size - len(raw) - structs.EXTRA.size
    start = record.end - item.size
    if not 0 <= padding <= _MOST_PADDING or (padding < DEFAULT_ALIGNMENT and start % DEFAULT_ALIGNMENT):
        return None  # it would look like a record that another program packed
    lengths = (len(raw), structs.EXTRA.size + padding)
    flags = structs.UTF8 | structs.HAS_DESCRIPTOR
    head = structs.LOCAL.pack(structs.LOCAL_SIGNATURE, 0, flags, 0, 0, 0, 0, 0, 0, *lengths)
    field = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    data = b"".join([each.data for each in item.data if isinstance(each, Literal)])
    return head + raw + field + data + descriptor(item.size, at, item.crc)


def _entries(
    data: bytes, directory: Directory, record: Record, item: Item, begin: int, dropped: Record | None
) -> Iterator[bytes]:
    """Yield the entries of the new directory: those of all other records as they are."""
    at = 0
    for each in directory.records:
        fields = structs.CENTRAL.unpack_from(data, at)
        length = structs.CENTRAL.size + sum(fields[10:13])
        if each is record:
            yield central_header(raw_name(item.name), item.size, begin, item.crc)
        elif each is not dropped:
            yield data[at : at + length]
        at += length
