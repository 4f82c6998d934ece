"""Turns a legacy file into the archive that ``torch.save`` writes since torch 1.6."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from hashlib import blake2b

from ckptdoctor.checkpoint import Source
from ckptdoctor.edits import Convert, Edit
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_legacy.elements import elements
from ckptdoctor.formats.torch_legacy.storages import LegacyStorages
from ckptdoctor.formats.torch_legacy.stream import Stream
from ckptdoctor.formats.torch_objects import Contents, edit
from ckptdoctor.formats.torch_objects.for_zip import prepare_for_zip
from ckptdoctor.formats.torch_objects.plans import Numbering
from ckptdoctor.formats.torch_zip.layout import DEFAULT_ALIGNMENT, Item, lay_out
from ckptdoctor.pickles import encode
from ckptdoctor.writing.recipe import Copy, Generated, Literal, Recipe, Segment

# the folder in the archive that torch uses when it does not know the file's name
_FOLDER = "archive"

_CHUNK = 1 << 20


def converted(
    source: Source, stream: Stream, table: LegacyStorages, contents: Contents, edits: Sequence[Edit]
) -> Recipe:
    """How to write the contents, with the other edits applied, as an archive. Every value is read for its checksum.

    Raises RefusedError when another container than "torch zip" is asked for, or something has no place in it.
    """
    other = next((each.format for each in edits if isinstance(each, Convert) and each.format != "torch zip"), None)
    if other is not None:
        raise RefusedError(f"A legacy torch file can become a torch zip file, but not {other}.")
    prepare_for_zip(stream.saved)
    rest = [each for each in edits if not isinstance(each, Convert)]
    plans = edit(stream.saved, contents, rest, renumber=Numbering.ALWAYS).storages
    head = encode(stream.saved)
    items = [_word("data.pkl", head), _word(".format_version", b"1")]
    items += [_word(".storage_alignment", str(DEFAULT_ALIGNMENT).encode()), _word("byteorder", b"little")]
    for plan in plans:
        data: tuple[Segment, ...] = tuple(elements(source, table.places, plan))
        items.append(Item(f"{_FOLDER}/data/{plan.key}", plan.nbytes, _checksum(source, data), data))
    items += [_word("version", b"3\n"), _word(".data/serialization_id", _identity(head, items))]
    return Recipe(source.file, lay_out(items))


def _word(name: str, data: bytes) -> Item:
    return Item(f"{_FOLDER}/{name}", len(data), zlib.crc32(data), (Literal(data),))


def _identity(head: bytes, items: Sequence[Item]) -> bytes:
    """Forty digits that stand for the contents; torch only logs them."""
    digest = blake2b(head + b"".join(item.crc.to_bytes(4, "little") for item in items), digest_size=16)
    return str(int(digest.hexdigest(), 16)).zfill(40).encode()


def _checksum(source: Source, segments: Sequence[Segment]) -> int:
    crc = 0
    for segment in segments:
        if isinstance(segment, Copy):
            for at in range(segment.offset, segment.offset + segment.length, _CHUNK):
                crc = zlib.crc32(source.read(at, min(_CHUNK, segment.offset + segment.length - at)), crc)
        elif isinstance(segment, Literal):
            crc = zlib.crc32(segment.data, crc)
        elif isinstance(segment, Generated):
            for chunk in segment.chunks():
                crc = zlib.crc32(chunk, crc)
    return crc
