"""Writes the header of a safetensors file again in the file itself: every tensor stays where it is.

A header that fits is padded with blanks to the length of the old one. A longer one needs room: whole blocks that the
file system puts in front of the file, or else the place of the first tensors, which move to the end.
"""

from __future__ import annotations

import json

from ckptdoctor.checkpoint import Source
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.formats.safetensors.entries import Info
from ckptdoctor.formats.safetensors.header import METADATA, Header
from ckptdoctor.formats.safetensors.reader import header_of
from ckptdoctor.formats.safetensors.signature import LENGTH_BYTES, MAX_HEADER_BYTES
from ckptdoctor.formats.safetensors.writer import write_copy
from ckptdoctor.inplace.change import NotInPlaceError
from ckptdoctor.writing.recipe import Copy, Literal, Recipe

# bytes of tensors that move to the end at most, to make room for a longer header
MOST_MOVED = 8 << 20
_ALIGNMENT = 8


def write_in_place(wanted: Wanted, source: Source, block: int | None) -> Recipe:
    """Return how to write the file with every tensor where it is, or shifted by whole blocks of ``block`` bytes.

    Where the file system cannot shift (None) the first tensors may move. Raises NotInPlaceError where other bytes of
    tensors are wanted or no room can be made, and what ``writer.write_copy`` raises.
    """
    header = header_of(source)
    first, *rest = write_copy(wanted, source).segments
    at = header.data
    for each in rest:
        if not isinstance(each, Copy) or each.offset != at or each.file not in (None, source.file):
            raise NotInPlaceError("bytes of tensors would be written or left out, not only names")
        at += each.length
    if not isinstance(first, Literal) or at != source.size:
        raise NotInPlaceError("bytes of tensors would be written or left out, not only names")
    text, room = first.data[LENGTH_BYTES:].rstrip(b" "), header.data - LENGTH_BYTES
    behind = Copy(header.data, source.size - header.data)
    if len(text) <= room:
        return Recipe(source.file, (_head(text, room), behind))
    if block is not None:
        grown = room + -(-(len(text) - room) // block) * block
        return Recipe(source.file, (_head(text, grown), behind), inserted=grown - room)
    return _with_first_moved(text, room, header, source)


def _head(text: bytes, length: int) -> Literal:
    if length > MAX_HEADER_BYTES:
        raise NotInPlaceError(f"the header would have {length:,} bytes, and safetensors allows {MAX_HEADER_BYTES:,}")
    return Literal(length.to_bytes(LENGTH_BYTES, "little") + text.ljust(length, b" "))


def _with_first_moved(text: bytes, room: int, header: Header, source: Source) -> Recipe:
    """Return the file with its first tensors at the end, as few as give the header room."""
    values = source.size - header.data
    ends = sorted({each.end for each in header.entries.values() if isinstance(each, Info)})
    for moved in ends:
        if moved > MOST_MOVED:
            break
        if moved % _ALIGNMENT or room + moved < len(text):
            continue
        said = _renumbered(text, moved, values)
        if len(said) <= room + moved:
            first, rest = Copy(header.data, moved), Copy(header.data + moved, values - moved)
            return Recipe(source.file, (_head(said, room + moved), rest, first))
    raise NotInPlaceError(
        "the longer names have no room in front of the first tensor, the file system cannot insert blocks, and the "
        f"first tensors are too large to be moved (at most {MOST_MOVED >> 20} MB)"
    )


def _renumbered(text: bytes, moved: int, values: int) -> bytes:
    """Return the header with the offsets that tensors have once the first ``moved`` bytes follow all others."""
    said = json.loads(text)
    for name, entry in said.items():
        if name == METADATA:
            continue
        if not isinstance(entry, dict):
            raise NotInPlaceError("the header is written in an unusual way")
        begin, end = entry["data_offsets"]
        by = values - moved if end <= moved and begin < moved else -moved
        if begin == end and begin == 0:
            by = values - moved  # an empty tensor goes with those in front
        entry["data_offsets"] = [begin + by, end + by]
    return json.dumps(said, separators=(",", ":"), ensure_ascii=text.isascii()).encode()
