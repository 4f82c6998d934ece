"""Where data lies in an archive of which only the directory is at hand, as ``torch.save`` lays archives out.

The header of each record, which says where its data begins, lies in front of it: over a network that would be a
request for each tensor. torch computes the same offsets itself (``getRecordOffsetNoRead``).
"""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.central import Entry
from ckptdoctor.formats.torch.zip.layout import DEFAULT_ALIGNMENT, local_header
from ckptdoctor.formats.torch.zip.record import Record
from ckptdoctor.formats.torch.zip.remarks import Remarks
from ckptdoctor.wording import plural

_FLAGS = (structs.UTF8, structs.UTF8 | structs.HAS_DESCRIPTOR)


def records_unseen(entries: Sequence[Entry], directory_offset: int, remarks: Remarks) -> list[Record] | None:
    """The records of ``entries``, in the same order, which is that of the file; None where one lies otherwise.

    Each place is worked out twice: from its header's offset on, and from where the next record begins backwards.
    """
    behind = [*(entry.offset for entry in entries[1:]), directory_offset]
    records = []
    for entry, following in zip(entries, behind, strict=True):
        begin = entry.offset + len(local_header(entry.name, entry.size, entry.offset, DEFAULT_ALIGNMENT))
        usual = entry.method == structs.STORED and entry.flags in _FLAGS and entry.size == entry.compressed
        if not usual or begin + entry.size + _descriptor(entry) != following:
            return None
        _, name, method, flags, crc, compressed, size, offset, directory = entry
        records.append(Record(name, method, flags, crc, size, compressed, offset, begin, directory))
    if records:
        message = (
            f"the headers in front of {plural(len(records), 'record')}, each of which would be a request of its own"
        )
        remarks.add(NoteKind.NOT_EXAMINED, message)
    return records


def _descriptor(entry: Entry) -> int:
    if not entry.size:
        return 0
    wide = entry.size >= structs.MAX32 or entry.offset >= structs.MAX32
    return structs.DESCRIPTOR64.size if wide else structs.DESCRIPTOR.size
