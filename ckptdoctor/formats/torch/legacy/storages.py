"""Where the storages of a legacy file lie: each an element count of eight bytes and the raw elements."""

from __future__ import annotations

from ckptdoctor.checkpoint import DType, Extent, Note, NoteKind, Source, Storage
from ckptdoctor.checkpoint.notes import IN_FRONT
from ckptdoctor.formats.torch.legacy.stream import Stream
from ckptdoctor.formats.torch.read.contents import LEGACY_ID
from ckptdoctor.formats.torch.read.storages import Claim, claim_of
from ckptdoctor.formats.torch.read.sweep import storage_references
from ckptdoctor.noun import noun
from ckptdoctor.wording import plural

COUNT_BYTES = 8


@noun
class Place:
    """One storage: its elements at ``offset``, ``length`` bytes of them in the file; its count says ``count``."""

    key: str
    offset: int
    length: int
    count: int


class LegacyStorages:
    """The storages of one file by key. ``places`` are those that begin in the file, in file order.

    ``end`` is the byte behind the last whole one, and ``notes`` says what is missing or contradicts the pickle.
    ``believed``: each storage is taken to be as long as the pickle says, and its count is not read.
    torch always writes little-endian values, whatever the system info says of the machine.
    """

    id_parts = LEGACY_ID

    def __init__(self, source: Source, stream: Stream, believed: bool = False) -> None:
        self._believed = believed or source.distant  # over a network each count would be a request
        self._path = source.file
        self._size = source.size
        self._claims = claims_of(stream)
        self.places: dict[str, Place] = {}
        self.notes: list[Note] = []
        self.end = stream.end
        self._walk(source, stream.keys)

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        """The storage with this key, of ``nbytes`` bytes as the pickle declares it."""
        place = self.places.get(key)
        extent = Extent(self._path, place.offset, place.length) if place is not None else None
        return Storage(key, nbytes, dtype, device, extent)

    def _walk(self, source: Source, keys: list[str | None]) -> None:
        listed = {key for key in keys if key is not None}
        for claimed in self._claims:
            if claimed not in listed:
                message = f"storage {claimed} is not in the list of storages: torch leaves its values uninitialised"
                self.notes.append(Note(NoteKind.STORAGE_MISSING, message, offset=self.end))
        for index, key in enumerate(keys):
            if not self._take(source, key, index, keys):
                return
        if self.end < self._size:
            rest = self._size - self.end
            message = (
                f"{plural(rest, 'byte follows', 'bytes follow')} the last storage at byte {self.end:,}; torch "
                f"never reads {'it' if rest == 1 else 'them'}"
            )
            self.notes.append(Note(NoteKind.TRAILING_BYTES, message, offset=self.end))

    def _take(self, source: Source, key: str | None, index: int, keys: list[str | None]) -> bool:
        """One storage. False: what follows cannot be found."""
        claim = self._claims.get(key) if key is not None else None
        if key is None or claim is None:
            message = (
                f"entry {index:,} of the list of storages is none that the pickle names: torch refuses the file, and "
                f"{plural(len(keys) - index, 'storage')} cannot be found"
            )
            self.notes.append(Note(NoteKind.STORAGE_MISSING, message, offset=self.end))
            return False
        if key in self.places:
            message = f"storage {key} is listed twice; torch reads it again and keeps the second one"
            self.notes.append(Note(NoteKind.STORAGE_SIZE, message, offset=self.end))
        if self.end + COUNT_BYTES > self._size:
            self._cut(index, keys)
            return False
        stated = claim.numel if self._believed else None  # the file's length, at the end, must do
        count = int.from_bytes(source.read(self.end, COUNT_BYTES), "little", signed=True) if stated is None else stated
        if count != claim.numel:
            message = (
                f"storage {key} should have {plural(claim.numel, 'element')}, but {count:,} "
                f"follow{'s' if count == 1 else ''}: torch refuses this"
            )
            self.notes.append(Note(NoteKind.STORAGE_SIZE, message, offset=self.end))
        if count < 0:
            return False
        start, length = self.end + COUNT_BYTES, count * claim.itemsize
        there = min(length, self._size - start)
        self.places[key] = Place(key, start, there, count)
        if there < length:
            if count == claim.numel:
                self._cut(index, keys)
            return False
        self.end = start + length
        return True

    def _cut(self, index: int, keys: list[str | None]) -> None:
        """The file ends within the storage at ``index`` of the list."""
        wanted = self.end
        for key in keys[index:]:
            claim = self._claims.get(key) if key is not None else None
            wanted += COUNT_BYTES + (claim.nbytes if claim is not None else 0)
        message = (
            f"the file ends at byte {self._size:,} and should have {wanted:,}: "
            f"{index:,} of {plural(len(keys), 'storage is', 'storages are')} complete, "
            f"{plural(wanted - self._size, 'byte is', 'bytes are')} missing"
        )
        guidance = IN_FRONT if index else ""
        self.notes.append(Note(NoteKind.TRUNCATED, message, offset=self._size, guidance=guidance))


def claims_of(stream: Stream) -> dict[str, Claim]:
    """What the pickle says of each storage; of several statements about one, the first, as torch does."""
    found: dict[str, Claim] = {}
    for reference in storage_references(stream.saved.root):
        claim = claim_of(reference)
        if claim is not None:
            found.setdefault(claim.key, claim)
    return found
