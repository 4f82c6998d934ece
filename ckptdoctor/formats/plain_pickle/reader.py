"""Tensors of a plain pickle: arrays of NumPy, and tensors of torch whose storages are pickled as files of their own."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ckptdoctor.checkpoint import DType, Extent, KeyPath, Note, NoteKind, Source, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.formats.numpy_files.elements import Element
from ckptdoctor.formats.numpy_files.values import BIG_ENDIAN, OTHER_ORDER, REBUILD, left_out, reason
from ckptdoctor.formats.plain_pickle.arrays import Array, array_of
from ckptdoctor.formats.plain_pickle.storages import Nested, NestedStorages
from ckptdoctor.formats.plain_pickle.stream import Stream
from ckptdoctor.formats.torch_objects.contents import ZIP_ID
from ckptdoctor.formats.torch_objects.storages import Known, Registry
from ckptdoctor.formats.torch_objects.tensors import INNER_READS, TensorReader
from ckptdoctor.pickles.graph import Made, PersistentId, Value

_MAX_COUNT = (1 << 63) - 1


class _NoStorages:
    """A plain pickle has no storages outside of itself."""

    id_parts = ZIP_ID

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        """A storage without values."""
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
        """The tensor or array that this object is; None when it is none, or cannot be one."""
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
        """The array with where its values lie: a storage in the file, or bytes in memory."""
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
            self._leave("arrays whose values do not fit their shapes", path)
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
        """Notes on all of the above, and on what was read of tensors."""
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
        """Whoever reads such a pickle may know it."""

    def strided(self, kind: str, arguments: list[Value], path: KeyPath, own_dtype: DType | None = None) -> Tensor:
        """A view of a storage, which may be in a file of torch that the pickle holds as bytes."""
        made = super().strided(kind, arguments, path, own_dtype)
        nested = self.files.get(arguments[0])
        if nested is None or nested.values is None:
            return made
        return replace(made, storage=None, device="cpu", values=nested.values)


def storages_of(reader: PickleReader) -> tuple[Storage, ...]:
    """Every storage of the pickle: those of torch, then those of arrays."""
    nested: list[Nested] = [each for each in reader.files.found if each.values is None]
    return (*reader.registry.storages, *[each.known.storage for each in nested], *reader.arrays)


_BYTE = BY_NAME["uint8"]
