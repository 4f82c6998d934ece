"""Finds every pickle in a file, wherever some loader unpickles one, and what each names as far as it can be followed.

The readers of formats take in what a checkpoint is made of, and stop where that breaks off. Here the same bytes are
gone through for nothing but the names in their pickles: of what cannot be read, of what is next to the contents, and
of what follows their end. No tree is made, nothing is imported, and the work is bounded.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from ckptdoctor.checkpoint import Aside, FileSource, Lying, Source
from ckptdoctor.errors import CkptDoctorError, DamagedError, TruncatedError
from ckptdoctor.formats.arrays.pickled.stream import Data, Mapped, data_of, follow_stream
from ckptdoctor.formats.recognise.compressed import recognise_compressed
from ckptdoctor.formats.recognise.pickled import begins
from ckptdoctor.formats.recognise.tars import TORCH_MEMBERS, is_tar, members_of, walk
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.records import Record, shown
from ckptdoctor.formats.torch.zip.truncated import Walk, local_at, step
from ckptdoctor.formats.window import Memory, Window
from ckptdoctor.pickles.graph import GlobalUse
from ckptdoctor.pickles.lookups import named_globals
from ckptdoctor.regex import regex

# bytes that are gone through of one file, of one that is compressed, and of one on another machine
MOST_BYTES = 128 << 20
_MOST_UNPACKED = 32 << 20
_MOST_DISTANT = 16 << 20

_HEAD = 4096
_DEEPEST = 4  # archives in archives, and pickles in the texts of pickles
_MOST_RECORDS = 10_000
_MOST_IN_ROW = 1_000  # pickles one behind the other
_MOST_RESTS = 100  # files one behind the other
_FIRST_STEP = 1 << 20
_GROWTH = 8

_NUMPY = b"\x93NUMPY"
_ZSTD = b"\x28\xb5\x2f\xfd"

# the values of tensors, and code: nothing unpickles them
_VALUES = regex(r"(?:.*/)?(?:data|constants|tensors)/\d+|(?:.*/)?code/.*\.(?:py|debug_pkl)")


def asides_of(source: Source, where: str = "", without: Collection[str] = ()) -> tuple[Aside, ...]:
    """Return what every pickle in a file names, the file being called ``where``.

    The records ``without`` of an archive are left out.

    Raises nothing for what the file holds.
    """
    search = Search()
    search.file(source, where, without)
    return tuple(search.found)


def behind(source: Source, start: int, where: str = "") -> tuple[Aside, ...]:
    """Return what pickles name that follow the end of another one, at byte ``start``."""
    search = Search()
    search.rest(source, start, where)
    return tuple(search.found)


def of_records(source: Source, records: Iterable[Record]) -> tuple[Aside, ...]:
    """Return what the pickles in these records of an archive name."""
    search = Search()
    search.records(source, records, "", 0)
    return tuple(search.found)


def of_texts(texts: Iterable[tuple[int, bytes]], where: str = "") -> tuple[Aside, ...]:
    """Return what strings name that are pickles themselves, or may be, each with its offset."""
    search = Search()
    search.texts(texts, where)
    return tuple(search.found)


class Search:
    """Goes through files, one after another; ``found`` are pickles that name something. ``room`` is in bytes."""

    def __init__(self, room: int = MOST_BYTES) -> None:
        self.found: list[Aside] = []
        self.room = room
        self._rests = 0

    def file(self, source: Source, where: str, without: Collection[str] = (), depth: int = 0) -> None:
        """Look into whatever the file is, by its first bytes."""
        if depth > _DEEPEST or self.room <= 0:
            return
        if source.distant:
            self.room = min(self.room, _MOST_DISTANT)
        with suppress(CkptDoctorError):  # whoever reads the file for its contents says what is wrong with it
            head = source.read(0, min(_HEAD, source.size))
            if head.startswith(structs.LOCAL_SIGNATURE):
                self._zip(source, head, where, without, depth)
            elif head.startswith(_NUMPY):
                self._array(source, where, depth)
            elif is_tar(head):
                self._tar(source, where, depth)
            elif begins(source, head):
                self._row(source, 0, where, Lying.BESIDE, depth)
            else:
                self._compressed(source, head, where, depth)

    def rest(self, source: Source, start: int, where: str, depth: int = 0) -> None:
        """Look into whatever follows the end of a pickle or an array, at byte ``start``."""
        if start >= source.size or self.room <= 0 or self._rests >= _MOST_RESTS:
            return
        self._rests += 1
        with suppress(CkptDoctorError):
            head = source.read(start, min(_HEAD, source.size - start))
            if head.startswith((structs.LOCAL_SIGNATURE, _NUMPY)):
                self.file(Window(source, start, source.size - start), where, depth=depth)
            else:
                self._row(source, start, where, Lying.BEHIND, depth)

    def texts(self, texts: Iterable[tuple[int, bytes]], where: str, base: int = 0) -> None:
        """Look into pickles in the texts of a pickle whose bytes begin at ``base``."""
        for at, raw in texts:
            names = list(self._names_in(raw, 0))
            self._add(Lying.INSIDE, names, where, base + at, 0)

    # ---- pickles

    def _row(self, source: Source, start: int, where: str, lying: Lying, depth: int) -> None:
        """Look into one pickle after another."""
        data, base = _beginning(source, start)
        at = reached = start - base
        for _ in range(_MOST_IN_ROW):
            followed, texts = follow_stream(data, at)
            while isinstance(followed.error, TruncatedError) and base + len(data) < source.size and self.room > 0:
                if len(data) >= self.room:
                    break
                data = source.read(base, min(len(data) * _GROWTH, self.room, source.size - base))
                followed, texts = follow_stream(data, at)
            if followed.error is not None:
                reached = followed.error.offset if followed.error.offset is not None else len(data)
                self._add(Lying.BROKEN, followed.names, where, base, reached)
                break
            self._add(lying, followed.names, where, base, at)
            self.texts(texts, where, base)
            at, lying = followed.end, Lying.BEHIND
            reached = at
            if base + at >= source.size:
                break
            if data[at : at + len(_NUMPY)] == _NUMPY or data[at : at + 4] == structs.LOCAL_SIGNATURE:
                self.rest(source, base + at, where, depth)
                break
        self.room -= base + reached - start

    def _names_in(self, raw: bytes, depth: int) -> Iterator[GlobalUse]:
        """Yield what the pickles in a text name, and those in their texts."""
        at = 0
        for _ in range(_MOST_IN_ROW):
            if at >= len(raw) or self.room <= 0:
                return
            self.room -= len(raw) - at
            followed, texts = follow_stream(raw, at)
            yield from followed.names
            if depth < _DEEPEST:
                for _, each in texts:
                    yield from self._names_in(each, depth + 1)
            if followed.error is not None:
                return
            at = followed.end

    def _add(self, lying: Lying, names: Iterable[GlobalUse], where: str, base: int, at: int) -> None:
        named = named_globals(names, where, base)
        if named:
            self.found.append(Aside(lying, named, where, base + at))

    # ---- what pickles lie in

    def _array(self, source: Source, where: str, depth: int) -> None:
        """Look into an array of NumPy: one of objects is a pickle behind its header."""
        from ckptdoctor.formats.arrays.npy_header import PREFIX, header_size, parse

        size = header_size(source.read(0, min(PREFIX, source.size)))
        header = parse(source.read(0, min(size, source.size)))
        if header.objects:
            self._row(source, header.size, where, Lying.BESIDE, depth)
        elif header.element is not None:
            self.rest(source, header.size + header.nbytes, where, depth)

    def _tar(self, source: Source, where: str, depth: int) -> None:
        entries = [entry for entry in walk(source) if entry.regular]
        of_torch = {entry.name.removeprefix("./") for entry in entries} & TORCH_MEMBERS
        if of_torch:
            self._tables(source, where)
        for entry in entries:
            name = entry.name.removeprefix("./")
            there = min(entry.size, source.size - entry.offset)
            if there > 0 and not (of_torch and name in ("storages", "tensors")):
                self.file(Window(source, entry.offset, there), _path(where, name), depth=depth + 1)

    def _tables(self, source: Source, where: str) -> None:
        """Look into the two members of torch's own archives in which pickles alternate with numbers."""
        from ckptdoctor.formats.torch.tar.tables import STORAGES, TENSORS, Cursor, Tables

        members, tables = members_of(source), Tables(source)
        for name in (STORAGES, TENSORS):
            if name not in members:
                continue
            cursor, lying = Cursor(source, name, members[name]), Lying.BESIDE
            try:
                tables.take(cursor)
            except DamagedError:
                lying = Lying.BROKEN
            self._add(lying, cursor.globals, _path(where, name), 0, cursor.base + cursor.at)

    def _zip(self, source: Source, head: bytes, where: str, without: Collection[str], depth: int) -> None:
        from ckptdoctor.formats.zip_archives import archive_of

        archive = archive_of(source, head)
        records = _walked(source) if archive is None else archive.records
        self.records(source, [each for each in records if each.name not in without], where, depth)

    def records(self, source: Source, records: Iterable[Record], where: str, depth: int) -> None:
        """Look into the files in an archive, up to a number."""
        looked = 0
        for record in records:
            if record.directory or _VALUES.fullmatch(record.name):
                continue
            looked += 1
            if looked > _MOST_RECORDS:
                return
            inner = self._record(source, record)
            if inner is not None:
                self.file(inner, _path(where, shown(record.name)), depth=depth + 1)

    def _compressed(self, source: Source, head: bytes, where: str, depth: int) -> None:
        """Look into the beginning of a compressed file, as far as it can be unpacked."""
        from ckptdoctor.formats.packed.streams import STREAMS, decompressed

        found = None if head.startswith(_ZSTD) else recognise_compressed(head)
        kind = "zstd file" if head.startswith(_ZSTD) else found.name if found is not None else ""
        if kind not in STREAMS or (source.distant and source.size > _MOST_DISTANT):
            return
        self.file(self._unpacked(source, decompressed(source, kind)), where, depth=depth + 1)

    def _record(self, source: Source, record: Record) -> Source | None:
        """Return the data of a record, as far as it is there, or None where nobody can read it."""
        there = min(record.compressed, source.size - record.data_offset)
        if record.data_offset < 0 or there <= 0 or record.flags & (structs.ENCRYPTED | structs.STRONG_ENCRYPTION):
            return None
        if record.method == structs.STORED:
            return Window(source, record.data_offset, there)
        if record.method != structs.DEFLATED:
            return None
        return self._unpacked(source, _inflated(source, record.data_offset, there))

    def _unpacked(self, source: Source, pieces: Iterator[bytes]) -> Source:
        """Return what these pieces are together: enough of them, or as many as there are before they break off."""
        made: list[bytes] = []
        room = min(_MOST_UNPACKED, self.room)
        with suppress(CkptDoctorError):
            for piece in pieces:
                made.append(piece[:room])
                room -= len(piece)
                self.room -= min(len(piece), self.room)
                if room <= 0 or _is_plain(made[0]):
                    break
        return Memory(source.path, b"".join(made))


def _path(where: str, name: str) -> str:
    return f"{where}/{name}" if where else name


def _beginning(source: Source, start: int) -> tuple[Data, int]:
    """Return bytes of the source with ``start`` in them, and where they begin.

    They are all of a file, or the beginning of a part.
    """
    if isinstance(source, (FileSource, Mapped)):
        return data_of(source), 0
    return source.read(start, min(_FIRST_STEP, source.size - start)), start


def _walked(source: Source) -> Iterator[Record]:
    """Yield the records of an archive without a list of them, up to the values of its tensors."""
    walk = Walk()
    told = 0
    while not walk.ended and told < _MOST_RECORDS:
        local = local_at(source, walk.at)
        if local is None or _VALUES.fullmatch(local.name):
            return
        step(source, walk, {})
        if walk.ended:
            yield local.record(source.size - local.data, 0)
        elif len(walk.found) > told:
            yield walk.found[-1]
        told += 1


def _inflated(source: Source, start: int, length: int) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    for at in range(start, start + length, _HEAD):
        try:
            yield inflater.decompress(source.read(at, min(_HEAD, start + length - at)))
        except zlib.error as error:
            raise DamagedError(f"It cannot be inflated: {error}.", offset=at) from error


def _is_plain(head: bytes) -> bool:
    """Return whether a file that begins so has no pickle in it: safetensors, and an array of anything but objects."""
    return head[8:9] == b"{" or (head.startswith(_NUMPY) and b"O" not in head[:_HEAD])
