"""Hostile archives for tests: real torch.save contents in a zip whose every header field can be made to lie."""

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass, field

import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource
from ckptdoctor.formats.torch.zip.directory import read_directory


def saved(contents, **options) -> bytes:
    """What torch.save writes for these contents."""
    buffer = io.BytesIO()
    torch.save(contents, buffer, **options)
    return buffer.getvalue()


@dataclass
class Part:
    """One record; ``local``, ``central`` and ``footer`` override header fields by name."""

    name: bytes
    data: bytes
    method: int = 0
    local: dict = field(default_factory=dict)
    central: dict = field(default_factory=dict)
    footer: bytes | None = None
    listed: bool = True
    padding: int = 0


def parts_of(archive: bytes) -> list[Part]:
    """The records of an archive, ready to be forged."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return [Part(info.filename.encode(), opened.read(info)) for info in opened.infolist()]


def part(parts: list[Part], ending: str) -> Part:
    """The one record whose name ends so."""
    (found,) = [each for each in parts if each.name.decode().endswith(ending)]
    return found


def deflated(data: bytes) -> bytes:
    """A raw deflate stream."""
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return squeezer.compress(data) + squeezer.flush()


LOCAL = ("version", "flags", "method", "time", "date", "crc", "compressed", "size", "name_length", "extra_length")
CENTRAL = (
    *("made", "version", "flags", "method", "time", "date", "crc", "compressed", "size"),
    *("name_length", "extra_length", "comment_length", "disk", "internal", "external", "offset"),
)


def assembled(parts: list[Part], *, before: bytes = b"", shift: bool = False, comment: bytes = b"", **end) -> bytes:
    """The archive, behind ``before`` (offsets adjusted only with ``shift``); ``end`` overrides end fields."""
    out, central = bytearray(), bytearray()
    base = len(before) if shift else 0
    for each in parts:
        offset = len(out) + base
        stored = deflated(each.data) if each.method == 8 else each.data
        common = {"flags": 0x0808, "method": each.method, "crc": zlib.crc32(each.data), "size": len(each.data)}
        name = each.local.get("name", each.name)
        extra = each.local.get("extra", b"FB" + struct.pack("<H", each.padding) + b"Z" * each.padding)
        values = {**common, "crc": 0, "size": 0, "name_length": len(name), "extra_length": len(extra), **each.local}
        out += struct.pack("<4sHHHHHIIIHH", b"PK\3\4", *(values.get(key, 0) for key in LOCAL)) + name + extra + stored
        footer = struct.pack("<4sIII", b"PK\7\x08", common["crc"], len(stored), len(each.data)) if each.data else b""
        out += footer if each.footer is None else each.footer
        if not each.listed:
            continue
        values = {**common, "compressed": len(stored), "name_length": len(each.name), "offset": offset, **each.central}
        extra = values.get("extra", b"")
        values["extra_length"] = len(extra)
        central += struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", *(values.get(key, 0) for key in CENTRAL))
        central += each.name + extra
    count = sum(each.listed for each in parts)
    values = {"disk": 0, "first": 0, "here": count, "count": count, "size": len(central), "offset": len(out) + base}
    values = {**values, "comment": len(comment), **end}
    tail = struct.pack("<4sHHHHIIH", b"PK\5\6", *values.values())
    return before + bytes(out) + bytes(central) + tail + comment


CONTENTS = {"w": torch.arange(6.0), "v": torch.arange(3), "empty": torch.zeros(0)}


def directory_of(data: bytes, folder):
    """The directory of an archive of these bytes."""
    path = folder / "file.pt"
    path.write_bytes(data)
    with FileSource(path) as source:
        return read_directory(source)


def noticed(data: bytes, folder):
    """What is noticed of the outside of a file of these bytes."""
    path = folder / "file.pt"
    path.write_bytes(data)
    with FileSource(path) as source:
        return formats.examine(source)


def loaded(data: bytes, folder, **options):
    """What torch loads from these bytes."""
    path = folder / "loaded.pt"
    path.write_bytes(data)
    return torch.load(path, weights_only=True, **options)


def kinds(found):
    """The kinds of the notes on an archive."""
    return {note.kind for note in found.notes}


def noted(found, kind, text, member=None):
    """The one note of this kind that holds the text, about the member."""
    (note,) = [note for note in found.notes if note.kind == kind and text in note.message]
    assert member is None or note.member == member
    return note
