"""Recognises and reads legacy files: their pickles and the counts of their storages, no values."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    DType,
    Extent,
    Lying,
    Note,
    NoteKind,
    Source,
    Storage,
)
from ckptdoctor.checkpoint.notes import IN_FRONT
from ckptdoctor.errors import DamagedError, HostileError, TruncatedError
from ckptdoctor.formats.torch.read import interpret
from ckptdoctor.formats.torch.read.slots import children
from ckptdoctor.formats.torch.read.storages import LEGACY_ID, Claim, claim_of, storage_key
from ckptdoctor.formats.torch.read.values import bare
from ckptdoctor.noun import noun
from ckptdoctor.pickles import Made, Pickle, Tuple, decode
from ckptdoctor.pickles.graph import storage_references
from ckptdoctor.pickles.lookups import named_globals
from ckptdoctor.pickles.nested import texts_of
from ckptdoctor.wording import plural

NAME = "torch legacy"

_CUT = "Download the file again, or use an earlier checkpoint: it ends before it describes its contents."

# each source's pickles between examine and read
_streams: WeakKeyDictionary[Source, Stream] = WeakKeyDictionary()
# those of sources whose storages are not looked at
_believed: WeakKeyDictionary[Source, Stream] = WeakKeyDictionary()


def believe(source: Source, stream: Stream) -> None:
    """Read no counts of storages from here on: the pickles say them, and the caller says whether that was checked."""
    _believed[source] = stream


def examine(source: Source, head: bytes) -> Container | None:
    """Return what the outside of the file says, or None when it does not begin with the magic number of legacy files.

    A file that ends within its pickles is a container that cannot be read.
    """
    if not is_legacy(head):
        return None
    readable, guidance = True, ""
    notes: tuple[Note, ...] = ()
    try:
        _streams[source] = _believed.get(source) or read_stream(source)
    except TruncatedError as error:
        readable, guidance = False, _CUT
        notes = (Note(NoteKind.TRUNCATED, error.message.rstrip("."), offset=error.offset),)
    except DamagedError:
        pass  # read says it again, with the place
    return Container(source.path, source.size, NAME, head, readable, guidance, notes, source.identity)


def read(source: Source, container: Container) -> Checkpoint:
    """Return the contents, from the pickles and the counts of the storages; no tensor value is read.

    Raises DamagedError or one of its kinds, with the byte, when the pickles cannot be read.
    """
    believed = _believed.get(source)
    stream = believed or _streams.pop(source, None) or read_stream(source)
    table = LegacyStorages(source, stream, believed is not None)
    contents = interpret(stream.saved, table, "")
    asides = _asides(source, stream, table)
    return Checkpoint(
        path=source.path,
        format=NAME,
        size=source.size,
        tree=contents.tree,
        tensors=contents.tensors,
        storages=contents.storages,
        state_dicts=contents.state_dicts,
        globals=contents.globals,
        notes=(*stream_notes(stream), *contents.notes, *table.notes),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
        asides=asides,
    )


def _asides(source: Source, stream: Stream, table: LegacyStorages) -> tuple[Aside, ...]:
    """Return what other pickles name: in texts of these, in those that are plain data, and behind the storages."""
    texts = [text for pickle in stream.pickles for text in texts_of(stream.data, pickle)]
    named = [pickle for pickle in stream.pickles if pickle is not stream.saved and pickle.globals]
    after = any(note.kind is NoteKind.TRAILING_BYTES for note in table.notes)
    if not texts and not named and not after:
        return ()
    from ckptdoctor.formats.other_pickles import behind, of_texts

    uses = named_globals([use for pickle in named for use in pickle.globals], "")
    own = (Aside(Lying.BESIDE, uses, "", uses[0].offset),) if uses else ()
    return (*own, *of_texts(texts), *(behind(source, table.end) if after else ()))


def stream_notes(stream: Stream) -> list[Note]:
    """Return what unpicklers may read differently in each of the pickles, and calls in those that are plain data."""
    notes = []
    for name, pickle in zip(NAMES, stream.pickles, strict=True):
        for each in pickle.ambiguities:
            notes.append(Note(NoteKind.PICKLE_AMBIGUOUS, f"{each.message} ({name})", offset=each.offset))
        if pickle is not stream.saved and pickle.globals:
            use = pickle.globals[0]
            message = f"the pickle of the {name} names {use.module}.{use.name}, where torch writes plain data"
            notes.append(Note(NoteKind.PICKLE_HIDDEN_CALL, message, offset=use.offset))
    return notes


# ---- the pickles at the beginning (``torch.serialization._legacy_save``)


# torch.serialization.MAGIC_NUMBER and PROTOCOL_VERSION
MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001

# how the number stands in a pickle: protocol 2 and later in binary, earlier ones in digits
_MAGIC_BYTES = (MAGIC.to_bytes(10, "little"), str(MAGIC).encode())
_MAGIC_WITHIN = 48

# the pickles are read in steps that grow, because nothing says where they end
_FIRST_STEP = 1 << 20
_GROWTH = 4
MAX_PICKLE_BYTES = 1 << 30

NAMES = ("magic number", "protocol version", "system info", "saved object", "storage keys")


@noun
class Stream:
    """The five pickles, decoded from ``data``, the file's beginning; ``end`` is where the storages begin."""

    data: bytes
    pickles: tuple[Pickle, ...]

    @property
    def saved(self) -> Pickle:
        """The pickle of the object that was saved."""
        return self.pickles[3]

    @property
    def end(self) -> int:
        """The byte after the last pickle."""
        return self.pickles[4].end

    @property
    def keys(self) -> list[str | None]:
        """The keys of the storages in the order in which they follow; None for anything that is not a key."""
        found = children(self.pickles[4].root)
        return [storage_key(each[-1].value.value) for part, each in found.items() if isinstance(part, int)]


def is_legacy(head: bytes) -> bool:
    """Return whether a file that begins so has the magic number of legacy files in its first pickle."""
    if not any(each in head[:_MAGIC_WITHIN] for each in _MAGIC_BYTES):
        return False
    try:
        return bare(decode(head).root) == MAGIC
    except DamagedError:
        return False


def read_stream(source: Source) -> Stream:
    """Return all five pickles.

    Raises TruncatedError when the file ends within them, DamagedError when one of them is invalid or the protocol
    version is another, HostileError when they take more than 1 GiB.
    """
    data = source.read(0, min(_FIRST_STEP >> 2 if source.distant else _FIRST_STEP, source.size))
    pickles: list[Pickle] = []
    for name in NAMES:
        data, pickle = _next(source, data, pickles[-1].end if pickles else 0, name)
        pickles.append(pickle)
        if len(pickles) == 2 and bare(pickle.root) != PROTOCOL:
            message = f"This is not version {PROTOCOL} of torch's old format, the only one there has been."
            raise DamagedError(message, offset=pickle.start)
    if not isinstance(bare(pickles[4].root), (Made, Tuple)):
        raise DamagedError("The list of storage keys is not a list.", offset=pickles[4].start)
    return Stream(data, tuple(pickles))


def _next(source: Source, data: bytes, start: int, name: str) -> tuple[bytes, Pickle]:
    """Return the pickle at ``start``, and the beginning of the file as far as it took to read it."""
    while True:
        try:
            return data, decode(data, start)
        except TruncatedError as error:
            if len(data) == source.size:
                message = f"The file ends within the pickle of the {name}, at byte {source.size:,}."
                raise TruncatedError(message, offset=source.size) from error
            if len(data) >= MAX_PICKLE_BYTES:
                message = f"The pickles take more than {MAX_PICKLE_BYTES:,} bytes, which is more than ckptdoctor reads."
                raise HostileError(message, offset=start) from error
        except DamagedError as error:
            message = f"The pickle of the {name} is damaged: {error.message}"
            raise type(error)(message, offset=error.offset) from error
        data += source.read(len(data), min(len(data) * (_GROWTH - 1), source.size - len(data)))


# ---- where the storages lie: each an element count of eight bytes and the raw elements


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
        """Return the storage with this key, of ``nbytes`` bytes as the pickle declares it."""
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
        """Take one storage. False: what follows cannot be found."""
        claim = self._claims.get(key) if key is not None else None
        if key is None or claim is None:
            message = (
                f"entry {index:,} of the list of storages is not one that the pickle names: torch rejects "
                f"the file, and {plural(len(keys) - index, 'storage')} cannot be found"
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
                f"follow{'s' if count == 1 else ''}: torch rejects this"
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
        """Note that the file ends within the storage at ``index`` of the list."""
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
    """Return what the pickle says of each storage; of several statements about one, the first, as torch does."""
    found: dict[str, Claim] = {}
    for reference in storage_references(stream.saved.root):
        claim = claim_of(reference)
        if claim is not None:
            found.setdefault(claim.key, claim)
    return found
