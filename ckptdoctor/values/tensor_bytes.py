"""The numbers of tensors come piece by piece, for the threads that look at each of them once.

Files are read, never mapped: reading costs no more, memory stays small, and a file that somebody truncates meanwhile is
an error here, and the end of a process that has it mapped.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from threading import Lock, local

import numpy as np

from ckptdoctor.casting.arrays import Array, array_of, held_as, room
from ckptdoctor.checkpoint import Checkpoint, Extent, Source, Storage, Tensor, show_path
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.tensor import storage_span
from ckptdoctor.errors import DamagedError
from ckptdoctor.values.files import Files
from ckptdoctor.values.regions import Boxes
from ckptdoctor.values.storage_checks import StorageChecks
from ckptdoctor.wording import count, plural

_INFLATED = 64 << 20  # a compressed record of which a view with gaps is wanted is held whole, up to this size
_REQUEST = 8 << 20  # bytes that are read at once where each read is a request over a network
_NEAR = 8 << 20  # a box that spans no more bytes than that is read in one go, whatever lies between its elements


class TensorBytes:
    """The numbers that threads read from one checkpoint; nothing that is read is kept.

    ``checks`` get the bytes of storages in the order of the file.
    """

    def __init__(self, checkpoint: Checkpoint, source: Source, checks: StorageChecks | None = None) -> None:
        self._source = source
        self._checks = checks
        self._swapped = checkpoint.big_endian
        self._lock = Lock()  # a source counts what it reads
        self._own = local()
        self._files: list[Files] = []
        self.boxes = Boxes(checkpoint, source, Work(), self._lock, near=_NEAR)

    def close(self) -> None:
        """Give the files back that threads have opened."""
        for files in self._files:
            files.close()

    def require(self, tensor: Tensor) -> None:
        """Raise DamagedError where not all bytes of a tensor are there."""
        storage = tensor.storage
        if storage is not None and storage.nbytes:
            _require_all(storage)
        held = storage.nbytes if storage is not None else tensor.values.nbytes if tensor.values is not None else 0
        reach = storage_span(tensor)[1]
        if reach * tensor.dtype.bits > held * 8 and 0 not in tensor.shape:
            place = "values" if storage is None else f"storage {storage.key}"
            there = held * 8 // tensor.dtype.bits
            raise DamagedError(
                f"{show_path(tensor.path)} does not fit its {place}: it reaches to element {count(reach)} of {there:,}",
                offset=None if storage is None or storage.extent is None else storage.extent.offset,
            )

    def require_unpacked(self, tensor: Tensor) -> None:
        """Raise DamagedError for a compressed record that is too large to be held whole."""
        storage = tensor.storage
        if storage is not None and storage.compressed and storage.nbytes > _INFLATED:
            raise DamagedError(f"Storage {storage.key} is compressed and too large for memory.")

    def whole(self, tensor: Tensor) -> Array:
        """Return all numbers of a small tensor, in a dtype that NumPy has."""
        self.require(tensor)
        self.require_unpacked(tensor)
        return self.boxes.read(tensor, [(range(size),) for size in tensor.shape])

    def pieces(self, tensor: Tensor, start: int, stop: int, most: int) -> Iterator[Array]:
        """Yield the elements ``start`` to ``stop`` of a tensor without gaps, as arrays of at most ``most``.

        They are valid until the next ones are asked for.
        """
        if tensor.storage is None:  # they stand in the pickle: that is in memory as a whole
            assert tensor.values is not None
            every = array_of(tensor.values, tensor.dtype.name)
            for at in range(start, stop, most):
                some = every[tensor.offset + at : tensor.offset + min(stop, at + most)]
                yield some if some.flags.aligned else some.copy()
        elif tensor.storage.compressed:
            yield from self._inflated(tensor, tensor.storage, most)
        else:
            size = tensor.dtype.bits // 8
            block = max(most, _REQUEST // size) if self._source.distant else most
            for at in range(start, stop, block):
                raw = self._read(tensor.storage, (tensor.offset + at) * size, min(block, stop - at) * size)
                read = self._in_order(raw, tensor.storage).view(held_as(tensor.dtype.name))
                yield from (read[first : first + most] for first in range(0, len(read), most))
                if self._checks is not None:  # they are in the cache by now; swapped once more, as they are in the file
                    self._checks.hear(tensor.storage, (tensor.offset + at) * size, self._in_order(raw, tensor.storage))

    def _read(self, storage: Storage, offset: int, length: int) -> Array:
        """Return some bytes of a storage, in memory that this thread reads into again and again."""
        extent = _require_all(storage)
        if offset + length > storage.nbytes:
            raise DamagedError(f"The bytes of storage {storage.key} are not all in the file.")
        raw = self._buffer(length)
        self._fill(extent, offset, raw.data)
        return raw

    def _buffer(self, length: int) -> Array:
        held: Array | None = getattr(self._own, "buffer", None)
        if held is None or held.size < length:
            held = self._own.buffer = room(length, "uint8")
        return held[:length]

    def _fill(self, extent: Extent, offset: int, view: memoryview) -> None:
        if self._source.distant or not extent.file:
            with self._lock:
                view[:] = self._source.part(extent.file).read(extent.offset + offset, len(view))
            return
        if not hasattr(self._own, "files"):
            self._own.files = Files(self._source)
            self._files.append(self._own.files)
        self._own.files.fill(extent.file, extent.offset + offset, view)

    def _in_order(self, raw: Array, storage: Storage) -> Array:
        """Return the bytes as this machine orders them; they are swapped where they are."""
        kind = storage.dtype
        width = 1 if kind is None else kind.bits // (16 if kind.kind == "complex" else 8)
        if not self._swapped or width <= 1 or kind is None:
            return raw
        if raw.size % width:
            raise DamagedError(
                f"Storage {storage.key} of {self._source.path} cannot be converted to this machine's byte "
                f"order: {plural(raw.size, 'byte is', 'bytes are')} not a whole number of {kind.name} elements."
            )
        raw.view(f"u{width}").byteswap(inplace=True)
        return raw

    def _inflated(self, tensor: Tensor, storage: Storage, most: int) -> Iterator[Array]:
        """Yield all elements of a compressed record, unpacked bit by bit."""
        size = tensor.dtype.bits // 8
        skip, left = tensor.offset * size, tensor.numel * size
        held = bytearray()
        for plain in self._plain(storage, most * size):
            held += plain
            if skip:
                gone = min(skip, len(held))
                del held[:gone]
                skip -= gone
            ready = min(left, len(held) - len(held) % size)
            if ready:
                left -= ready
                raw = np.frombuffer(bytearray(held[:ready]), np.uint8)
                yield self._in_order(raw, storage).view(held_as(tensor.dtype.name))
                del held[:ready]
            if not left:
                return
        raise DamagedError(f"The compressed record of storage {storage.key} is too short.")

    def _plain(self, storage: Storage, most: int) -> Iterator[bytes]:
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        extent = storage.extent
        assert extent is not None
        for at in range(0, extent.length, most):
            with self._lock:
                packed = self._source.part(extent.file).read(extent.offset + at, min(most, extent.length - at))
            while packed and not inflate.eof:
                try:
                    yield inflate.decompress(packed, most)
                except zlib.error as error:
                    raise DamagedError(f"The compressed record of storage {storage.key} is damaged: {error}.") from None
                packed = inflate.unconsumed_tail


def _require_all(storage: Storage) -> Extent:
    """Return the place of the bytes of a storage. Raises DamagedError where the file has fewer than it declares."""
    extent = storage.extent
    if extent is None or (not storage.compressed and extent.length < storage.nbytes):
        raise DamagedError(f"The bytes of storage {storage.key} are not all in the file.")
    return extent
