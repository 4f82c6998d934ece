"""Storages of torch in a plain pickle: ``_load_from_bytes`` with a whole legacy file, read by the reader of those.

Source: ``torch.storage.TypedStorage.__reduce__``: ``torch.save(storage, …, _use_new_zipfile_serialization=False)``.
"""

from __future__ import annotations

from dataclasses import replace

from ckptdoctor.checkpoint import Extent, Note, NoteKind, Source
from ckptdoctor.errors import CkptDoctorError, TruncatedError
from ckptdoctor.formats.arrays.pickled.arrays import bytes_of
from ckptdoctor.formats.arrays.pickled.held import Held
from ckptdoctor.formats.torch.legacy.storages import LegacyStorages
from ckptdoctor.formats.torch.legacy.stream import Stream, is_legacy, read_stream
from ckptdoctor.formats.torch.read.storages import Known, claim_of
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, full_name
from ckptdoctor.formats.window import Memory, Window
from ckptdoctor.noun import noun
from ckptdoctor.pickles import decode
from ckptdoctor.pickles.graph import GlobalUse, Made, PersistentId, Value

LOADER = "torch.storage._load_from_bytes"

# a nested file of one storage has its pickles within this
_HEAD = 4096


@noun(frozen=False)
class Nested:
    """A storage that was read out of a nested file. ``values`` are its bytes where no extent can name them."""

    known: Known
    values: memoryview | None


class NestedStorages:
    """The nested files of one pickle, each read once. ``notes`` says which cannot be, ``globals`` what they name."""

    def __init__(self, source: Source, member: str) -> None:
        self._source = source
        self._member = member
        self._found: dict[int, Nested | None] = {}
        self._nodes: list[Made] = []  # so that no other node gets the id of one
        self._first: Stream | None = None  # one that was read: nearly all begin with the same bytes
        self.notes: list[Note] = []
        self.globals: list[GlobalUse] = []

    @property
    def found(self) -> list[Nested]:
        """Those that were read, in order."""
        return [each for each in self._found.values() if each is not None]

    def get(self, reference: Value) -> Nested | None:
        """The storage that a call of ``_load_from_bytes`` gives; None for anything else."""
        node = bare(reference)
        if type(node) is not Made or node.op not in CALLS or full_name(node.items[0]) != LOADER:
            return None
        if id(node) not in self._found:
            self._nodes.append(node)
            self._found[id(node)] = self._read(node)
        return self._found[id(node)]

    def _read(self, node: Made) -> Nested | None:
        arguments = call(node)[1]
        given = bare(arguments[0]) if len(arguments) == 1 else None
        try:
            if isinstance(given, Held):
                return self._opened(Window(self._source, given.start, given.length), given.start)
            data = bytes_of(given)
            return None if data is None else self._opened(Memory(self._source.path, data), None)
        except CkptDoctorError as error:
            message = f"a storage that is pickled as a file of its own cannot be read: {error.message}"
            self.notes.append(Note(NoteKind.PICKLE_DAMAGED, message.rstrip("."), self._member))
            return None

    def _opened(self, inner: Window | Memory, base: int | None) -> Nested | None:
        """The storage of a nested file whose bytes begin at ``base`` of the file around it."""
        if self._first is None and not is_legacy(inner.read(0, min(_HEAD, inner.size))):
            return None
        stream = _stream(inner, self._first)
        self._first = stream
        for pickle in stream.pickles:
            self.globals += [GlobalUse(use.module, use.name, (base or 0) + use.offset) for use in pickle.globals]
        root = bare(stream.saved.root)
        claim = claim_of(root) if type(root) is PersistentId else None
        if claim is None:
            return None
        table = LegacyStorages(inner, stream)
        self.notes += table.notes
        storage = table.find(claim.key, claim.dtype, claim.device, claim.nbytes)
        extent, values = storage.extent, None
        if isinstance(inner, Memory):
            values = memoryview(inner.data)[extent.offset : extent.offset + extent.length] if extent else None
            extent = None
        elif extent is not None and base is not None:
            extent = Extent(self._source.file, base + extent.offset, extent.length)
        made = replace(storage, key=f"nested {len(self._found)}", extent=extent)
        return Nested(Known(made, claim, 0 if claim.view is None else claim.view[1]), values)


def _stream(inner: Window | Memory, first: Stream | None) -> Stream:
    """The pickles of a nested file. Those before the saved object are ``first``'s where the bytes are the same."""
    head = inner.read(0, min(_HEAD, inner.size))
    same = first.data[: first.saved.start] if first is not None else b""
    try:
        if first is not None and head.startswith(same):
            saved = decode(head, len(same))
            return Stream(head, (*first.pickles[:3], saved, decode(head, saved.end)))
        return read_stream(Memory(inner.path, head))
    except TruncatedError:
        if len(head) == inner.size:
            raise
    return read_stream(inner)
