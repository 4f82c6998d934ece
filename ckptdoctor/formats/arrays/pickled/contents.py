"""Turns a plain pickle into the nouns of a checkpoint."""

from __future__ import annotations

from math import prod

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    DType,
    Extent,
    KeyPath,
    Node,
    Note,
    NoteKind,
    Source,
    Storage,
    Tensor,
)
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.errors import CkptDoctorError, TruncatedError
from ckptdoctor.formats.arrays.npy_header import BIG_ENDIAN, OTHER_ORDER, REBUILD, Element, left_out, reason
from ckptdoctor.formats.arrays.pickled.arrays import Array, array_of, bytes_of
from ckptdoctor.formats.arrays.pickled.stream import Held, Stream, read_stream
from ckptdoctor.formats.torch.legacy.read import LegacyStorages, is_legacy
from ckptdoctor.formats.torch.legacy.read import Stream as LegacyStream
from ckptdoctor.formats.torch.legacy.read import read_stream as read_legacy_stream
from ckptdoctor.formats.torch.read.interpret import changed_elsewhere, read_unseen
from ckptdoctor.formats.torch.read.storages import ZIP_ID, Known, Registry, claim_of
from ckptdoctor.formats.torch.read.tensors import INNER_READS, TensorReader
from ckptdoctor.formats.torch.read.tree import TreeBuilder, _Frame
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, full_name
from ckptdoctor.formats.window import Memory, Window
from ckptdoctor.noun import noun, replace
from ckptdoctor.pickles import decode
from ckptdoctor.pickles.graph import GlobalUse, Made, PersistentId, Value, nodes
from ckptdoctor.pickles.lookups import named_globals
from ckptdoctor.wording import plural

_LOADER = ("torch.storage", "_load_from_bytes")


def contents_of(source: Source, container: Container) -> Checkpoint:
    """Return what the pickle holds. Raises DamagedError when it is invalid."""
    stream = read_stream(source)
    reader = PickleReader(source, stream, "")
    builder = PickleTree(stream.pickle, reader, "")
    tree = builder.build()
    read_unseen(reader, stream.pickle)
    uses = [*stream.pickle.globals, *reader.files.globals]
    if _all_opened(stream, reader):
        uses = [use for use in uses if (use.module, use.name) != _LOADER]
    return Checkpoint(
        path=source.path,
        format=container.format,
        size=source.size,
        tree=tree,
        tensors=tuple(builder.tensors),
        storages=storages_of(reader),
        state_dicts=find_state_dicts(tree),
        globals=named_globals(uses, ""),
        notes=(
            *_stream_notes(source, stream),
            *changed_elsewhere(stream.pickle, ""),
            *builder.notes,
            *reader.remarks(),
        ),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
        asides=_asides(source, stream),
    )


def _asides(source: Source, stream: Stream) -> tuple[Aside, ...]:
    """Return what other pickles name: in texts of this one, and behind its end."""
    if not stream.texts and stream.pickle.end == source.size:
        return ()
    from ckptdoctor.formats.other_pickles import behind, of_texts

    return (*of_texts(stream.texts), *behind(source, stream.pickle.end))


def _all_opened(stream: Stream, reader: PickleReader) -> bool:
    """Return whether every call of ``_load_from_bytes`` has been read: what loads from bytes hides nothing then."""
    calls = [node for node in nodes(stream.pickle.root) if type(node) is Made and node.op in CALLS]
    return all(reader.files.get(node) for node in calls if full_name(node.items[0]) == LOADER)


def _stream_notes(source: Source, stream: Stream) -> list[Note]:
    notes = [Note(NoteKind.PICKLE_AMBIGUOUS, each.message, offset=each.offset) for each in stream.pickle.ambiguities]
    end = stream.pickle.end
    if end < source.size:
        message = (
            f"{plural(source.size - end, 'byte follows', 'bytes follow')} the end of the pickle at byte "
            f"{end:,}; pickle.load never reads there"
        )
        notes.append(Note(NoteKind.TRAILING_BYTES, message, offset=end))
    return notes


# ---- the tree of a plain pickle, in which long bytes are counted instead of shown


_LONGEST_SHOWN = 1 << 16


class PickleTree(TreeBuilder):
    """Builds the tree of a pickle whose bytes stay in the file."""

    def _visit(self, value: Value, path: KeyPath) -> Node | _Frame:
        if type(value) is Held and value.length > _LONGEST_SHOWN:
            return self._elide(f"bytes that are longer than {_LONGEST_SHOWN:,}", path)
        return super()._visit(value, path)


# ---- tensors of a plain pickle: arrays of NumPy, and tensors of torch whose storages are pickled as files of their own


_MAX_COUNT = (1 << 63) - 1


class _NoStorages:
    """A plain pickle has no storages outside of itself."""

    id_parts = ZIP_ID

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        """Return a storage without values."""
        return Storage(key, nbytes, dtype, device, None)


class PickleReader(TensorReader):
    """Reads arrays and tensors. ``arrays`` are the storages of the arrays, in the order in which they were met.

    An array in the other byte order than the first one of more than a byte an element is left as an object.
    """

    def __init__(self, source: Source, stream: Stream, member: str) -> None:
        self.registry = Registry(_NoStorages(), member)
        super().__init__(self.registry, member, stream.pickle.opcodes + INNER_READS)
        self.files = NestedStorages(source, member)
        self._file = source.file
        self._payloads = stream.payloads
        self._known_arrays: dict[int, tuple[Array, Storage | memoryview] | None] = {}
        self._big: bool | None = None
        self._left_out: dict[str, list[KeyPath]] = {}
        self.arrays: list[Storage] = []

    def read(self, node: Made, path: KeyPath, depth: int = 0) -> Tensor | None:
        """Return the tensor or array that this object is, or None when it is none, or cannot be one."""
        found = self._array(node, path)
        return found if found is not None else super().read(node, path, depth)

    # ---- arrays

    def _array(self, node: Made, path: KeyPath) -> Tensor | None:
        if id(node) not in self._known_arrays:
            self._known_arrays[id(node)] = self._placed(node, path)
        known = self._known_arrays[id(node)]
        if known is None:
            return None
        array, place = known
        assert array.kind.element is not None
        stride = contiguous_stride(array.shape[::-1])[::-1] if array.fortran else contiguous_stride(array.shape)
        element = array.kind.element.dtype
        if isinstance(place, Storage):
            return Tensor(path, element, array.shape, stride, place, rebuild=REBUILD)
        return Tensor(path, element, array.shape, stride, None, rebuild=REBUILD, values=place)

    def _placed(self, node: Made, path: KeyPath) -> tuple[Array, Storage | memoryview] | None:
        """Return the array and where its values are: a storage in the file, or bytes in memory."""
        array = array_of(node, self._payloads)
        if array is None:
            return None
        element = array.kind.element
        if element is None:
            self._leave(reason(array.kind.code), path)
            return None
        nbytes = prod(array.shape) * (element.dtype.bits // 8)
        there = array.length if array.held is None else len(array.held)
        if nbytes > _MAX_COUNT or (array.start is None and array.held is None) or there != nbytes:
            self._leave("arrays whose values do not match their shapes", path)
            return None
        if not self._in_order(element, array.held is not None):
            self._leave(OTHER_ORDER, path)
            return None
        if array.held is not None:
            return array, memoryview(array.held)
        extent = Extent(self._file, array.start or 0, nbytes)
        storage = Storage(f"array {len(self.arrays)}", nbytes, element.dtype, "cpu", extent)
        self.arrays.append(storage)
        return array, storage

    def _in_order(self, element: Element, held: bool) -> bool:
        if element.dtype.bits <= 8:
            return True
        if held:  # nothing can say of bytes in memory that they stand the other way round
            return not element.big
        if self._big is None:
            self._big = element.big
        return self._big == element.big

    def _leave(self, why: str, path: KeyPath) -> None:
        self._left_out.setdefault(why, []).append(path)

    def remarks(self) -> list[Note]:
        """Return notes on all of the above, and on what was read of tensors."""
        notes = [*self.notes, *self.registry.notes, *self.files.notes]
        if self._big:
            notes.append(Note(NoteKind.BIG_ENDIAN, BIG_ENDIAN, self._member))
        return [*notes, *left_out(self._left_out, self._member)]

    # ---- tensors of torch

    def _storage(self, reference: Value, own_dtype: DType | None) -> tuple[Known, DType]:
        nested = self.files.get(reference)
        if nested is None:
            return super()._storage(reference, own_dtype)
        element = own_dtype if own_dtype is not None else nested.known.claim.dtype
        return nested.known, _BYTE if element is None else element

    def refuse_reference(self, node: PersistentId, path: KeyPath) -> None:
        """Let the reference be: whoever reads such a pickle may know it."""

    def strided(self, kind: str, arguments: list[Value], path: KeyPath, own_dtype: DType | None = None) -> Tensor:
        """Return a view of a storage, which may be in a file of torch that the pickle holds as bytes."""
        made = super().strided(kind, arguments, path, own_dtype)
        nested = self.files.get(arguments[0])
        if nested is None or nested.values is None:
            return made
        return replace(made, storage=None, device="cpu", values=nested.values)


def storages_of(reader: PickleReader) -> tuple[Storage, ...]:
    """Return every storage of the pickle: those of torch, then those of arrays."""
    nested: list[Nested] = [each for each in reader.files.found if each.values is None]
    return (*reader.registry.storages, *[each.known.storage for each in nested], *reader.arrays)


_BYTE = BY_NAME["uint8"]


# ---- storages of torch: ``_load_from_bytes`` with a whole legacy file, read by the reader of those
#
# Source: ``torch.storage.TypedStorage.__reduce__``: ``torch.save(storage, …, _use_new_zipfile_serialization=False)``.


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
        self._first: LegacyStream | None = None  # one that was read: nearly all begin with the same bytes
        self.notes: list[Note] = []
        self.globals: list[GlobalUse] = []

    @property
    def found(self) -> list[Nested]:
        """Those that were read, in order."""
        return [each for each in self._found.values() if each is not None]

    def get(self, reference: Value) -> Nested | None:
        """Return the storage that a call of ``_load_from_bytes`` gives, or None for anything else."""
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
        """Return the storage of a nested file whose bytes begin at ``base`` of the file around it."""
        if self._first is None and not is_legacy(inner.read(0, min(_HEAD, inner.size))):
            return None
        stream = _stream(inner, self._first)
        self._first = stream
        for pickle in stream.pickles:
            self.globals += [replace(use, offset=(base or 0) + use.offset) for use in pickle.globals]
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


def _stream(inner: Window | Memory, first: LegacyStream | None) -> LegacyStream:
    """Return the pickles of a nested file.

    Those before the saved object are ``first``'s where the bytes are the same.
    """
    head = inner.read(0, min(_HEAD, inner.size))
    same = first.data[: first.saved.start] if first is not None else b""
    try:
        if first is not None and head.startswith(same):
            saved = decode(head, len(same))
            return LegacyStream(head, (*first.pickles[:3], saved, decode(head, saved.end)))
        return read_legacy_stream(Memory(inner.path, head))
    except TruncatedError:
        if len(head) == inner.size:
            raise
    return read_legacy_stream(inner)
