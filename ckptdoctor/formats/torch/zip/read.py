"""Recognises and reads archives that ``torch.save`` wrote (since torch 1.6): the directory and ``data.pkl`` only."""

from __future__ import annotations

import zlib
from typing import Union
from weakref import WeakKeyDictionary

from ckptdoctor.checkpoint import Aside, Checkpoint, Container, DType, Extent, Note, NoteKind, Source, Storage
from ckptdoctor.checkpoint.notes import UNREADABLE
from ckptdoctor.checkpoint.source import is_judged, is_rewritten
from ckptdoctor.errors import CkptDoctorError, DamagedError, NotACheckpointError, TruncatedError
from ckptdoctor.formats.torch.read import interpret
from ckptdoctor.formats.torch.read.storages import ZIP_ID
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.directory import read_directory
from ckptdoctor.formats.torch.zip.local_headers import (
    BIG_ENDIAN,
    MAX_INFLATED_PICKLE_BYTES,
    MAX_PICKLE_BYTES,
    MAX_WORD_BYTES,
    first_name,
    read_record,
    unreadable,
)
from ckptdoctor.formats.torch.zip.records import Directory, Record, shown
from ckptdoctor.formats.window import Memory
from ckptdoctor.noun import maker, noun
from ckptdoctor.pickles import Pickle, decode
from ckptdoctor.pickles.entries import Entries
from ckptdoctor.pickles.nested import texts_of
from ckptdoctor.wording import plural

NAME = "torch zip"

# what torch 2.13 accepts in the version record (kMinSupportedFileFormatVersion, kMaxSupportedFileFormatVersion)
_VERSIONS = range(1, 11)

# the small records of torch.save and of C++
SERIALIZATION_ID = ".data/serialization_id"
_WORDS = ("version", "byteorder", ".format_version", ".storage_alignment", SERIALIZATION_ID, ".data/version")

# the first byte of every pickle of protocol 2 and later: torch reads such a file as a legacy one, whatever its end says
_PICKLE = b"\x80"

# each source's directory, read once for examine, read and write
_directories: WeakKeyDictionary[Source, Directory] = WeakKeyDictionary()


@noun
class ReadPickle:
    """A pickle as bytes and decoded; ``storages`` are all that it names, None where they have yet to be looked up."""

    data: bytes
    pickle: Pickle
    storages: tuple[Storage, ...] | None = None


# the pickle of each source that is to be rewritten, until it is
_pickles: WeakKeyDictionary[Source, ReadPickle] = WeakKeyDictionary()


# the stream of each source that is to be judged, until it is, and the entries that were read of it
_streams: WeakKeyDictionary[Source, tuple[bytes, Union[Entries, None]]] = WeakKeyDictionary()


def directory_of(source: Source) -> Directory:
    """Return the directory of an archive, read at most once per open source. Raises what read_directory raises."""
    directory = _directories.get(source)
    if directory is None:
        directory = _directories[source] = read_directory(source)
    return directory


def remember(source: Source, directory: Directory) -> None:
    """Take this for the directory of the archive from now on."""
    _directories[source] = directory


def examine(source: Source, head: bytes) -> Container | None:
    """Return what the outside of the file shows, or None when it is not an archive with a ``data.pkl`` in a folder.

    A damaged archive whose first record is ``data.pkl`` is a container that cannot be read, with a note.
    """
    zipped = head.startswith(structs.LOCAL_SIGNATURE)
    if head.startswith(_PICKLE) or source.size < structs.END.size:
        return None
    if not zipped:
        from ckptdoctor.formats.recognise.tars import is_tar

        if is_tar(head):  # the last file in a tar archive may be one of torch's
            return None
    try:
        directory = directory_of(source)
    except NotACheckpointError:
        return None
    except TruncatedError as error:
        return _cut_off(source, head, error) if zipped else None
    except DamagedError as error:
        return _damaged(source, head, error) if zipped else None
    notes = directory.notes
    if not zipped:
        message = (
            "the file does not begin with a zip header, by which torch.load recognises archives: it rejects the file"
        )
        notes = (Note(NoteKind.ZIP_UNUSUAL, message, offset=0), *notes)
    return Container(source.path, source.size, NAME, head, True, notes=notes, identity=source.identity)


def _cut_off(source: Source, head: bytes, error: TruncatedError) -> Container | None:
    from ckptdoctor.formats.torch.zip.truncated import describe  # only broken files need it

    return describe(source, head, NAME, error)


def _damaged(source: Source, head: bytes, error: DamagedError) -> Container | None:
    name = first_name(source)
    if name is None or not name.lower().endswith("/data.pkl"):
        return None
    note = Note(NoteKind.ZIP_DAMAGED, error.message.rstrip("."), error.member, error.offset)
    guidance = "Download the file again, or use another copy of it: the list of its records is damaged."
    return Container(source.path, source.size, NAME, head, False, guidance, (note,), source.identity)


def read(source: Source, container: Container) -> Checkpoint:
    """Return the contents, from ``data.pkl`` and the directory; no tensor value is read.

    Raises DamagedError (or its kinds) naming the record and the byte when the archive cannot be read that far.
    """
    directory = directory_of(source)
    record = pickle_record(directory)
    data, notes = pickle_bytes(source, record)
    pickle = decode_member(data, record)
    asides = _asides(source, directory, record, pickle, data)
    notes += _stream_notes(pickle, data, record)
    notes += _word_notes(source, directory)
    table = ZipStorages(source.file, directory)
    contents = interpret(pickle, table, shown(record.name))
    if is_rewritten(source) and not any(note.kind is NoteKind.CRC_MISMATCH for note in notes):
        storages = contents.storages if contents.shows_all and not table.notes else None
        _pickles[source] = ReadPickle(data, pickle, storages)
    if is_judged(source):
        _streams[source] = data, pickle.entries
    return Checkpoint(
        path=source.path,
        format=NAME,
        size=source.size,
        tree=contents.tree,
        tensors=contents.tensors,
        storages=contents.storages,
        state_dicts=contents.state_dicts,
        globals=contents.globals,
        notes=(*notes, *contents.notes, *table.notes),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
        asides=asides,
    )


def bytes_in_front(source: Source, directory: Directory) -> int:
    """Return how many bytes before the archive a copy loses; an old pickle, replaced in place, does not count."""
    first = min(record.header_offset for record in directory.records)
    return first if first and first_name(source) != pickle_record(directory).name else 0


def pickle_record(directory: Directory) -> Record:
    """Return the record that torch takes for ``data.pkl``. Raises DamagedError when there is none."""
    record = directory.find("data.pkl")
    if record is None:
        raise DamagedError(f"The archive has no {directory.prefix}/data.pkl, so nothing describes its contents.")
    return record


def pickle_bytes(source: Source, record: Record) -> tuple[bytes, list[Note]]:
    """Return the bytes of ``data.pkl``, and a note when they do not match their checksum.

    Raises as read_record does.
    """
    deflated = record.method == structs.DEFLATED
    data = read_record(source, record, MAX_INFLATED_PICKLE_BYTES if deflated else MAX_PICKLE_BYTES)
    if not record.crc or zlib.crc32(data) == record.crc:
        return data, []
    message = f"{shown(record.name)} does not match its checksum: some of its bytes have changed"
    return data, [Note(NoteKind.CRC_MISMATCH, message, shown(record.name))]


def decode_member(data: bytes, record: Record) -> Pickle:
    """Return the decoded pickle; errors of decoding carry the record's name."""
    name = shown(record.name)
    try:
        return decode(data)
    except DamagedError as error:
        raise type(error)(f"{name}: {error.message}", offset=error.offset, member=name) from error


def taken_pickle(source: Source) -> ReadPickle | None:
    """Return the sound pickle of a source that is to be rewritten, as it was read.

    It is given once, for who takes it changes it.
    """
    return _pickles.pop(source, None)


def taken_stream(source: Source) -> tuple[bytes, Entries | None] | None:
    """Return ``data.pkl`` of a source that is to be judged, as it was read; it is given once, for it may be large."""
    return _streams.pop(source, None)


def _stream_notes(pickle: Pickle, data: bytes, record: Record) -> list[Note]:
    """Return what is odd about the stream itself: ambiguities, and bytes behind its end."""
    member = shown(record.name)
    notes = [
        Note(NoteKind.PICKLE_AMBIGUOUS, ambiguity.message, member, ambiguity.offset) for ambiguity in pickle.ambiguities
    ]
    if pickle.end < len(data):
        rest = len(data) - pickle.end
        message = (
            f"{plural(rest, 'byte follows', 'bytes follow')} the end of the pickle at byte {pickle.end:,}; "
            "torch never reads there"
        )
        notes.append(Note(NoteKind.PICKLE_HIDDEN_CALL, message, member, pickle.end))
    return notes


def _asides(source: Source, directory: Directory, record: Record, pickle: Pickle, data: bytes) -> tuple[Aside, ...]:
    """Return what other pickles name.

    They are in texts of this one, behind its end, and in records that torch.save does not write.
    """
    member = shown(record.name)
    texts = texts_of(data, pickle)
    strange = _strange(directory, record)
    if not texts and not strange and pickle.end == len(data):
        return ()
    from ckptdoctor.formats.other_pickles import behind, of_records, of_texts

    found = of_texts(texts, member)
    found += behind(Memory(source.path, data), pickle.end, member)
    return (*found, *of_records(source, strange))


def _strange(directory: Directory, record: Record) -> list[Record]:
    """Return the records next to ``record`` that are neither storages nor the small ones of torch.save."""
    prefix = directory.prefix
    storages, usual = f"{prefix}/data/", frozenset([f"{prefix}/{word}" for word in _WORDS])
    others = [each for each in directory.records if not each.name.startswith(storages)]
    return [each for each in others if each.name not in usual and each.data_offset != record.data_offset]


def _word_notes(source: Source, directory: Directory) -> list[Note]:
    """Return what the small records say: byte order and versions."""
    notes = []
    order = read_word(source, directory, "byteorder")
    if order == b"big":
        notes.append(_word_note(NoteKind.BIG_ENDIAN, BIG_ENDIAN, directory, "byteorder"))
    elif order not in (None, b"little"):
        message = "the byteorder record is neither little nor big: torch rejects the file"
        notes.append(_word_note(NoteKind.ZIP_UNUSUAL, message, directory, "byteorder"))
    name = ".data/version" if directory.find(".data/version") else "version"
    version = read_word(source, directory, name)
    number = whole_number(version)
    if number is None or number not in _VERSIONS:
        missing = "has no version record" if version is None else "has a version record that torch does not know"
        notes.append(_word_note(NoteKind.ZIP_UNUSUAL, f"the archive {missing}: torch rejects it", directory, name))
    if is_garbled(source, directory):
        message = "the serialization_id record is not text: torch rejects the file"
        notes.append(_word_note(NoteKind.ZIP_UNUSUAL, message, directory, SERIALIZATION_ID))
    return notes


def is_garbled(source: Source, directory: Directory) -> bool:
    """Return whether the record by which torch tells files apart is not text, which torch makes of it before all."""
    try:
        (read_word(source, directory, SERIALIZATION_ID) or b"").decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def _word_note(kind: NoteKind, message: str, directory: Directory, name: str) -> Note:
    return Note(kind, message, shown(f"{directory.prefix}/{name}"))


def read_word(source: Source, directory: Directory, name: str) -> bytes | None:
    """Return what a small record holds, or None where there is none, and b"" where it cannot be read."""
    record = directory.find(name)
    if record is None:
        return None
    try:
        return read_record(source, record, MAX_WORD_BYTES)
    except CkptDoctorError:  # the directory's notes say what is wrong with this record
        return b""


def whole_number(word: bytes | None) -> int | None:
    """Return the number that a record holds in ASCII digits, or None when it holds something else."""
    text = (word or b"").strip()
    return int(text) if text.isdigit() and len(text) <= 9 else None


# ---- where the storages that the pickle names lie in the archive


_extent, _storage = maker(Extent), maker(Storage)


class ZipStorages:
    """The storages of one archive, looked up by key as torch does (``<prefix>/data/<key>``).

    ``notes`` gathers what is missing or has another length than the pickle says.
    """

    id_parts = ZIP_ID

    def __init__(self, path: str, directory: Directory) -> None:
        self._path = path
        self._directory = directory
        self._found, self._folder = directory.found, directory.folder
        self.notes: list[Note] = []

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        """Return the storage with this key, of ``nbytes`` bytes as the pickle declares it."""
        record = self._found.get(self._folder + key) or self._directory.storage(key)
        if record is None:
            member = shown(f"{self._directory.prefix}/data/{key}")
            message = f"storage {shown(key)} ({plural(nbytes, 'byte')}) has no record: its values are not in the file"
            self.notes.append(Note(NoteKind.STORAGE_MISSING, message, member))
            return Storage(key, nbytes, dtype, device, None)
        _, method, flags, crc, size, compressed, _, offset, _ = record  # by name each takes as long as all of them
        if flags & structs.UNREADABLE or method not in structs.METHODS:
            member = shown(f"{self._directory.prefix}/data/{key}")
            message = f"the values of storage {shown(key)} {UNREADABLE}: {unreadable(record)}"
            self.notes.append(Note(NoteKind.STORAGE_MISSING, message, member))
            return Storage(key, nbytes, dtype, device, None)
        if size != nbytes:
            member = shown(f"{self._directory.prefix}/data/{key}")
            message = (
                f"storage {shown(key)} should be {plural(nbytes, 'byte')}, but its record has "
                f"{size:,}: torch.load rejects it, but reads bytes of its neighbours with mmap=True"
            )
            self.notes.append(Note(NoteKind.STORAGE_SIZE, message, member))
        extent = _extent(self._path, offset, compressed)
        return _storage(key, nbytes, dtype, device, extent, crc if crc or not size else None, method != structs.STORED)
