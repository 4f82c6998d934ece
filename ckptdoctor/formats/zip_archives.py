"""Reads zip archives that torch.load does not: their records by name, and storages that are records."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ckptdoctor.checkpoint import DType, Extent, Note, NoteKind, Source, Storage
from ckptdoctor.errors import CkptDoctorError, DamagedError
from ckptdoctor.formats.torch.read.storages import ZIP_ID
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.central_directory import find_end, read_entries
from ckptdoctor.formats.torch.zip.local_headers import BIG_ENDIAN, check_readable, check_records, read_record
from ckptdoctor.formats.torch.zip.records import Record, Remarks, shown
from ckptdoctor.noun import noun
from ckptdoctor.wording import plural

# more than this of a record that says something of the others (a pickle, JSON, code) is not read
MAX_INDEX_BYTES = 128 << 20

_WORD_BYTES = 64

# what torch.load says of compressed records and the like does not matter to other readers
_FOR_TORCH_LOAD = frozenset({NoteKind.ZIP_UNUSUAL})


@noun
class Archive:
    """The records of a zip archive; ``found`` has them by name, of several with one name the last."""

    records: tuple[Record, ...]
    found: dict[str, Record]
    notes: tuple[Note, ...]

    def folder(self, *names: str) -> str | None:
        """Return the first folder, with its slash, in which all of these records are ("" for the top).

        It is None where there is no such folder.
        """
        for record in self.records:
            if record.name == names[0] or record.name.endswith(f"/{names[0]}"):
                folder = record.name[: -len(names[0])]
                if all(f"{folder}{name}" in self.found for name in names):
                    return folder
        return None

    def read(self, source: Source, name: str, limit: int = MAX_INDEX_BYTES) -> bytes:
        """Return the data of the record ``name``. Raises DamagedError where it is not there or cannot be read."""
        record = self.found.get(name)
        if record is None:
            raise DamagedError(f"The archive has no {shown(name)}.", member=shown(name))
        return read_record(source, record, limit)


_archives: WeakKeyDictionary[Source, Archive | None] = WeakKeyDictionary()


def archive_of(source: Source, head: bytes) -> Archive | None:
    """Return the zip archive that a source is, read at most once.

    It is None where it is none, or one without a directory.
    """
    if not head.startswith(structs.LOCAL_SIGNATURE):
        return None
    if source not in _archives:
        try:
            _archives[source] = _read(source)
        except CkptDoctorError:  # what recognises other files says what is wrong with it
            _archives[source] = None
    return _archives[source]


def required(source: Source, head: bytes) -> Archive:
    """Return the same for a file that was examined as one. Raises DamagedError when it no longer is one."""
    archive = archive_of(source, head)
    if archive is None:
        raise DamagedError(f"{source.path} is no longer a zip archive: it changed while it was read.")
    return archive


def _read(source: Source) -> Archive:
    remarks = Remarks()
    end = find_end(source, remarks)
    records = check_records(source, read_entries(source, end, remarks), end.offset, remarks)
    found = {record.name: record for record in records}
    if len(found) < len(records):
        message = (
            f"{plural(len(records) - len(found), 'record has', 'records have')} the name of another one: readers "
            "differ on which counts"
        )
        remarks.add(NoteKind.ZIP_AMBIGUOUS, message)
    notes = tuple([note for note in remarks.notes() if note.kind not in _FOR_TORCH_LOAD])
    return Archive(tuple(records), found, notes)


def order_notes(source: Source, archive: Archive, folder: str) -> tuple[Note, ...]:
    """Return a note where the archive says that its values are big-endian."""
    name = f"{folder}byteorder"
    if name not in archive.found or archive.read(source, name, _WORD_BYTES) != b"big":
        return ()
    return (Note(NoteKind.BIG_ENDIAN, BIG_ENDIAN, shown(name)),)


class RecordStorages:
    """Storages that are records in one folder of an archive. ``prefix`` goes before their keys, to tell folders apart.

    ``notes`` gathers what is missing or has another length than was announced.
    """

    id_parts = ZIP_ID

    def __init__(self, source: Source, archive: Archive, folder: str, prefix: str = "") -> None:
        self._source = source
        self._archive = archive
        self.folder = folder
        self._prefix = prefix
        self.notes: list[Note] = []

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        """Return the storage in the record ``key``, of ``nbytes`` bytes as it was announced."""
        name = f"{self.folder}{key}"
        record = self._archive.found.get(name)
        if record is None:
            message = f"{shown(name)} ({plural(nbytes, 'byte')}) is not in the archive: its values are lost"
            self.notes.append(Note(NoteKind.STORAGE_MISSING, message, shown(name)))
            return Storage(f"{self._prefix}{key}", nbytes, dtype, device, None)
        if not is_whole(self._source, record):
            message = f"the values in {shown(name)} cannot be read: its record is damaged"
            self.notes.append(Note(NoteKind.STORAGE_MISSING, message, shown(name)))
            return Storage(f"{self._prefix}{key}", nbytes, dtype, device, None)
        if record.size != nbytes:
            message = f"{shown(name)} should be {plural(nbytes, 'byte')}, but its record has {record.size:,}"
            self.notes.append(Note(NoteKind.STORAGE_SIZE, message, shown(name)))
        return stored(self._source.file, record, f"{self._prefix}{key}", nbytes, dtype, device)


def is_whole(source: Source, record: Record) -> bool:
    """Return whether the data of a record is in the file, in a form that can be read."""
    try:
        check_readable(record)
    except DamagedError:
        return False
    fits = record.size == record.compressed or record.method != structs.STORED
    return fits and record.data_offset >= 0 and record.end <= source.size


def stored(file: str, record: Record, key: str, nbytes: int, dtype: DType | None, device: str = "cpu") -> Storage:
    """Return the storage that a record is."""
    extent = Extent(file, record.data_offset, record.compressed)
    crc = record.crc if record.crc or not record.size else None
    return Storage(key, nbytes, dtype, device, extent, crc, record.method != structs.STORED)
