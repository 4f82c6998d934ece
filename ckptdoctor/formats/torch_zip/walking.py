"""Goes from one record of an archive to the next by what stands at each, without the list at the end."""

from __future__ import annotations

from collections.abc import Mapping

from ckptdoctor.checkpoint import Source
from ckptdoctor.formats.torch_zip import structs
from ckptdoctor.formats.torch_zip.record import Record
from ckptdoctor.noun import field, noun

# a record whose length only its descriptor tells is searched for it in at most this many bytes
_SEARCH = 256 << 20
_FIRST_SEARCH = 64 << 10


@noun(frozen=False)
class Walk:
    """What was found on the way: the complete records, where the next one should begin, and whether that was the end.

    ``cut`` is a record that begins in the file and whose length is known, but whose data or descriptor is not all
    there: its ``compressed`` counts the bytes that are.
    """

    found: list[Record] = field(default_factory=list)
    at: int = 0
    ended: bool = False
    cut: Record | None = None


@noun
class Local:
    """A local header: ``size`` and ``crc`` are what it says itself, ``deferred`` whether they follow the data."""

    name: str
    flags: int
    header: int
    data: int
    size: int
    crc: int
    deferred: bool

    def record(self, size: int, crc: int, there: int | None = None) -> Record:
        """The record of ``size`` bytes, of which ``there`` are in the file (None: all)."""
        stored = structs.STORED
        count = size if there is None else there
        return Record(self.name, stored, self.flags, crc, size, count, self.header, self.data, False)


def step(source: Source, walk: Walk, sizes: Mapping[str, int]) -> None:
    """Take the next record, or end the walk. ``sizes`` are the lengths of records that are known by other means."""
    local = local_at(source, walk.at)
    if local is None:
        walk.ended = True
        return
    length = sizes.get(local.name) if local.deferred else local.size
    known = length is not None
    if length is None:
        length = _search(source, local.data)
    behind = None if length is None else _behind(source, local, length)
    if length is None or behind is None:
        walk.ended = True
        there = source.size - local.data
        if known and length is not None and there < length:
            walk.cut = local.record(length, 0, there)
        return
    crc, walk.at = behind
    walk.found.append(local.record(length, crc))


def local_at(source: Source, at: int) -> Local | None:
    """The local header at ``at``, of a record that is stored as it is; None where there is none."""
    if at + structs.LOCAL.size > source.size:
        return None
    fields = structs.LOCAL.unpack(source.read(at, structs.LOCAL.size))
    signature, _, flags, method, _, _, crc, compressed, size, name_length, extra_length = fields
    data = at + structs.LOCAL.size + name_length + extra_length
    if signature != structs.LOCAL_SIGNATURE or data > source.size or method != structs.STORED or compressed != size:
        return None
    name = source.read(at + structs.LOCAL.size, name_length).decode("utf-8", "surrogateescape")
    return Local(name, flags, at, data, size, crc, bool(flags & structs.HAS_DESCRIPTOR) and not size)


def _search(source: Source, data: int) -> int | None:
    """The length of a record that only its descriptor tells: the one that gives just the length it stands behind."""
    reach = _FIRST_SEARCH
    while True:
        window = source.read(data, min(reach, source.size - data))
        at = window.find(structs.DESCRIPTOR_SIGNATURE)
        while at >= 0:
            if window[at + 8 : at + 12] == window[at + 12 : at + 16] == at.to_bytes(4, "little"):
                return at
            at = window.find(structs.DESCRIPTOR_SIGNATURE, at + 1)
        if reach >= min(_SEARCH, source.size - data):
            return None
        reach *= 16


def _behind(source: Source, local: Local, size: int) -> tuple[int, int] | None:
    """The checksum, and the byte after a record's data and descriptor; None when they are not all there."""
    end = local.data + size
    if not local.deferred or not size:
        return (local.crc, end) if end <= source.size else None
    for form in (structs.DESCRIPTOR, structs.DESCRIPTOR64):
        if end + form.size <= source.size:
            signature, crc, compressed, length = form.unpack(source.read(end, form.size))
            if (signature, compressed, length) == (structs.DESCRIPTOR_SIGNATURE, size, size):
                return crc, end + form.size
    return None
