"""Reads compressed files whose beginning says what they hold: the rest is not unpacked, or passes by unkept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ckptdoctor.checkpoint import Checkpoint, Container, FileIdentity, NoteKind, Source
from ckptdoctor.checkpoint.tensor import is_contiguous
from ckptdoctor.errors import CkptDoctorError, TruncatedError
from ckptdoctor.formats.packed.streams import decompressed
from ckptdoctor.formats.packed.thin import Passage
from ckptdoctor.formats.packed.unpacking import within_bounds
from ckptdoctor.formats.safetensors.header import read_header
from ckptdoctor.formats.safetensors.reader import remember
from ckptdoctor.formats.safetensors.signature import LENGTH_BYTES, MAX_HEADER_BYTES
from ckptdoctor.formats.torch.legacy.read import COUNT_BYTES, LegacyStorages, believe, is_legacy, read, read_stream
from ckptdoctor.noun import replace
from ckptdoctor.wording import plural

# what says that it is no longer is unpacked as a whole, which tells whether it is: that takes a moment
SMALL = 64 << 20

_HEAD = 64  # bytes that tell which of them it is

_UNKNOWN = 1 << 62  # the size while nobody has said how long it is: longer than any


class Front:
    """What a compressed file unpacks to, from its beginning on, in memory; ``size`` is what its own header says.

    What is further back is unpacked and forgotten up to there. ``file`` is "": no extent can name what is nowhere.
    """

    distant = False

    def __init__(self, source: Source, packed: Container) -> None:
        self.path = source.path
        self.file = ""
        self.size = _UNKNOWN
        self.identity: FileIdentity | None = source.identity
        self.source = source
        self.packed = packed
        self._pieces = decompressed(source, packed.format)
        self._kept = bytearray()
        self._read = 0

    @property
    def bytes_read(self) -> int:
        """Unpacked bytes that were looked at so far."""
        return self._read

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes at ``offset``.

        Raises TruncatedError when it ends before, and DamagedError.
        """
        stop = offset + length
        if offset < 0 or length < 0 or stop > self.size:
            raise TruncatedError(
                f"{plural(length, 'byte is', 'bytes are')} needed at offset {offset} of {self.size}.", offset=offset
            )
        if stop <= LENGTH_BYTES + MAX_HEADER_BYTES:
            while len(self._kept) < stop:
                self._kept += self._next(self._pieces, len(self._kept))
            data = bytes(memoryview(self._kept)[offset:stop])
        else:
            data = self._further(offset, stop)
        self._read += length
        return data

    def part(self, file: str) -> Source:
        """Return itself: all bytes are here."""
        return self

    def close(self) -> None:
        """Close nothing: whoever opened the packed file closes it."""

    def passage(self, hear: Callable[[int, bytes], None]) -> Passage:
        """Return all of it once more, from its first byte to its last one."""
        return Passage(self, hear)

    def pieces(self) -> Iterator[bytes]:
        """Return what it unpacks to once more. Raises DamagedError, and HostileError for a bomb."""
        return within_bounds(decompressed(self.source, self.packed.format), self.packed.size)

    def ends_at(self, size: int) -> None:
        """Compare the end of the file, once it has been reached, with what the header says."""
        self._read = size
        if size != self.size:  # a file of torch was counted before
            self.size = size
            remember(self, read_header(self))

    def _further(self, offset: int, stop: int) -> bytes:
        pieces, at, found = decompressed(self.source, self.packed.format), 0, bytearray()
        while at < stop:
            piece = self._next(pieces, at)
            found += piece[max(0, offset - at) : stop - at]
            at += len(piece)
        return bytes(found)

    def _next(self, pieces: Iterator[bytes], at: int) -> bytes:
        piece = next(pieces, None)
        if piece is None:
            raise TruncatedError(f"The packed contents end after {plural(at, 'byte')}.", offset=at)
        return piece


def front_of(source: Source, packed: Container, passed: bool = False) -> Front | None:
    """Return the inside of a compressed file whose whole contents are told by its beginning, where it is a large one.

    That is a safetensors file, or one of torch before 1.6. None for everything else: what is small, what is broken in
    its beginning, and what has its headers elsewhere; where all of it is to be ``passed`` by once, also what has
    tensors that share bytes.
    """
    inside = Front(source, packed)
    try:
        head = inside.read(0, _HEAD)
        if head[LENGTH_BYTES : LENGTH_BYTES + 1] == b"{":
            return _of_safetensors(inside, passed)
        return _of_legacy(inside, passed) if is_legacy(head) else None
    except CkptDoctorError:  # unpacked as a whole, it is said what is wrong
        return None


def _of_safetensors(inside: Front, passed: bool) -> Front | None:
    header = read_header(inside)
    if header.end < SMALL or any(isinstance(each, str) for each in header.entries.values()):
        return None
    if passed and _overlaps([(each.begin, each.end) for each in header.entries.values() if not isinstance(each, str)]):
        return None
    # that bytes follow its tensors was said of a size that nobody knows
    remember(inside, replace(header, notes=tuple([n for n in header.notes if n.kind is not NoteKind.TRAILING_BYTES])))
    inside.size = header.end
    return inside


def _of_legacy(inside: Front, passed: bool) -> Front | None:
    """Return a file of torch before 1.6: its pickles come first, and give the length of each storage after them.

    The values of each follow their number. Where everything is to be ``passed``, that happens once in advance, to
    compare these numbers and the end with what the pickles say: a contradiction leaves the file to another reader.
    """
    stream = read_stream(inside)
    table = LegacyStorages(inside, stream, believed=True)
    if table.end < SMALL or any(note.kind is not NoteKind.TRAILING_BYTES for note in table.notes):
        return None
    inside.size = table.end
    believe(inside, stream)
    if passed:
        checkpoint = read(inside, inside.packed)
        if not in_one_passage(checkpoint) or not _as_counted(inside, table):
            return None
    return inside


def in_one_passage(checkpoint: Checkpoint) -> bool:
    """Return whether each storage is one tensor, whose values follow one another: no byte is read twice."""
    taken, places = set(), []
    for tensor in checkpoint.tensors:
        storage = tensor.storage
        if tensor.values is not None and storage is None:
            continue  # in memory
        if tensor.parts or tensor.chunks or storage is None or storage.key in taken or not is_contiguous(tensor):
            return False
        taken.add(storage.key)
        if storage.extent is not None:
            places.append((storage.extent.offset, storage.extent.offset + storage.extent.length))
    return not _overlaps(places)


def _as_counted(inside: Front, table: LegacyStorages) -> bool:
    passage = inside.passage(lambda at, piece: None)
    for place in table.places.values():
        count = passage.read(place.offset - COUNT_BYTES, COUNT_BYTES)
        if int.from_bytes(count, "little", signed=True) != place.count:
            return False
    while passage.go_on():
        pass  # to where it ends
    return passage.error is None and passage.at == table.end


def _overlaps(places: Iterable[tuple[int, int]]) -> bool:
    """Return whether a byte belongs to two tensors, or a tensor ends before it begins."""
    at = 0
    for begin, end in sorted(places):
        if begin < at or end < begin:
            return True
        at = end
    return False
