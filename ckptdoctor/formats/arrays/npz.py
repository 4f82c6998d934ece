"""``numpy.savez`` and ``numpy.savez_compressed`` write a zip archive of arrays."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    GlobalName,
    KeyPath,
    Mapping,
    Node,
    Note,
    NoteKind,
    Part,
    Source,
    Storage,
    Tensor,
)
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.errors import CkptDoctorError, DamagedError
from ckptdoctor.formats.arrays.npy import MOST_PICKLED, named_in_record
from ckptdoctor.formats.arrays.npy_header import (
    BIG_ENDIAN,
    OTHER_ORDER,
    PREFIX,
    Header,
    header_size,
    left_out,
    opaque,
    parse,
    reason,
    tensor,
)
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.records import Record, shown
from ckptdoctor.formats.unrepairable import refused
from ckptdoctor.formats.zip_archives import Archive, archive_of, is_whole, required, stored
from ckptdoctor.wording import plural

if TYPE_CHECKING:
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

__all__ = ["NAME", "examine", "read", "write"]

NAME = "NumPy archive"

_SUFFIX = ".npy"

# bytes that are read of a deflated record, and unpacked of it: the header of an array takes 128
_PEEK = 1 << 14


def examine(source: Source, head: bytes) -> Container | None:
    """Return a zip archive of nothing but arrays, or None for any other file."""
    archive = archive_of(source, head)
    if archive is None or not archive.records or not all(each.name.endswith(_SUFFIX) for each in archive.records):
        return None
    return Container(source.path, source.size, NAME, head, True, notes=archive.notes, identity=source.identity)


def read(source: Source, container: Container) -> Checkpoint:
    """Return the arrays, from their headers; no value is read. What cannot be read becomes a note."""
    archive = required(source, container.head)
    reader = _Reader(source, archive)
    for name, record in archive.found.items():
        reader.take(name[: -len(_SUFFIX)], record)
    tree = reader.tree()
    return Checkpoint(
        path=source.path,
        format=NAME,
        size=source.size,
        tree=tree,
        tensors=tuple([value for _, value in tree.entries if isinstance(value, Tensor)]),
        storages=tuple(reader.storages),
        state_dicts=find_state_dicts(tree),
        globals=tuple(reader.globals),
        notes=tuple(reader.notes),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
        asides=(*reader.asides, *reader.broken()),
    )


class _Reader:
    """Takes one record after the other; a big-endian array is a tensor only where all arrays are big-endian."""

    def __init__(self, source: Source, archive: Archive) -> None:
        self._source = source
        self._archive = archive
        self._unread = MOST_PICKLED
        self._big: list[bool] = []
        self._found: list[tuple[str, Header, Storage | None]] = []
        self._left_out: dict[str, list[KeyPath]] = {}
        self.storages: list[Storage] = []
        self.globals: list[GlobalName] = []
        self.asides: list[Aside] = []
        self._lost: set[str] = set()
        self.notes: list[Note] = []

    def take(self, key: str, record: Record) -> None:
        """Take the array in one record."""
        member = shown(record.name)
        try:
            header = parse(self._head(record))
            self._look_into(record, header)
        except CkptDoctorError as error:
            message = f"{member} cannot be read: {error.message}"
            self.notes.append(Note(NoteKind.ZIP_DAMAGED, message.rstrip("."), member))
            self._lost.add(record.name)
            return
        storage = None
        if header.element is None or header.size % (header.element.dtype.bits // 8):
            self._left_out.setdefault(reason(header.code), []).append((key,))
        else:
            storage = self._storage(key, header, record)
            if header.element.dtype.bits > 8:
                self._big.append(header.element.big)
        self._found.append((key, header, storage))

    def _look_into(self, record: Record, header: Header) -> None:
        """Note the names in a pickle that is not too long; a longer one is said to be unread."""
        if header.objects and record.size <= self._unread:
            self._unread -= record.size
            names, asides = named_in_record(self._source, self._archive, record.name, header, record.size)
            self.globals += names
            self.asides += asides

    def broken(self) -> tuple[Aside, ...]:
        """Return what the records that cannot be read name in front of the place where each breaks off."""
        if not self._lost:
            return ()
        from ckptdoctor.formats.other_pickles import asides_of

        return asides_of(self._source, without=self._archive.found.keys() - self._lost)

    def _head(self, record: Record) -> bytes:
        """Return the record's beginning, as far as its header goes; of a deflated one its first bytes."""
        if not is_whole(self._source, record):
            return b""
        if record.method != structs.STORED:
            return _inflated(self._source.read(record.data_offset, min(_PEEK, record.compressed)))
        prefix = self._source.read(record.data_offset, min(PREFIX, record.size))
        return self._source.read(record.data_offset, min(header_size(prefix), record.size))

    def _storage(self, key: str, header: Header, record: Record) -> Storage:
        """Return the whole record, so that its checksum holds: the tensor begins behind the header in it."""
        assert header.element is not None
        wanted = header.size + header.nbytes
        if record.size != wanted:
            message = f"{shown(record.name)} should be {plural(wanted, 'byte')}, but its record has {record.size:,}"
            self.notes.append(Note(NoteKind.STORAGE_SIZE, message, shown(record.name)))
        return stored(self._source.file, record, key, wanted, header.element.dtype)

    def tree(self) -> Mapping:
        """Return every array under its name."""
        swapped = all(self._big) and bool(self._big)
        if swapped:
            self.notes.append(Note(NoteKind.BIG_ENDIAN, BIG_ENDIAN))
        entries: list[tuple[Part, Node]] = []
        for key, header, storage in self._found:
            if storage is None or header.element is None:
                entries.append((key, opaque(header)))
            elif header.element.big and not swapped:
                self._left_out.setdefault(OTHER_ORDER, []).append((key,))
                entries.append((key, opaque(header)))
            else:
                offset = header.size // (header.element.dtype.bits // 8)
                entries.append((key, tensor((key,), header, storage, offset)))
                self.storages.append(storage)
        self.notes += left_out(self._left_out)
        return Mapping("dict", tuple(entries))


def _inflated(packed: bytes) -> bytes:
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, _PEEK)
    except zlib.error as error:
        raise DamagedError(f"its compressed bytes are damaged: {error}") from error


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Raise RefusedError: a file of NumPy is converted, not repaired."""
    raise refused(wanted.original.path, NAME)
