"""The bytes of tensors for one look at each: mapped where they are in the file as torch wants them, else in pieces.

torch itself, whose machine code takes long to load, is loaded beforehand while other threads go on.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Extent, Source, Storage, Tensor
from ckptdoctor.errors import DamagedError
from ckptdoctor.loading.inert import Inert
from ckptdoctor.loading.storages import StorageReader
from ckptdoctor.loading.tensors import make_tensor

if TYPE_CHECKING:
    import torch


_INFLATED = 64 << 20  # a compressed record of which a view with gaps is wanted is held whole, up to this size


class TensorBytes:
    """The bytes that threads read from one checkpoint; nothing that was copied is kept."""

    def __init__(self, checkpoint: Checkpoint, source: Source) -> None:
        self._checkpoint = checkpoint
        self._source = source
        self._reader = StorageReader(checkpoint, source)
        self._lock = Lock()  # a source counts what it reads, and the reader remembers its maps

    def mapped(self, tensor: Tensor) -> torch.Tensor | None:
        """The tensor as a view of the mapped file; None where its bytes have to be copied.

        Raises DamagedError where they are not all there.
        """
        if tensor.storage is None or tensor.storage.nbytes == 0:
            return None
        _require_all(tensor.storage)
        return self.whole(tensor) if self._reader.maps(tensor.storage) else None

    def let_go(self) -> None:
        """Give back the memory of what was mapped and looked at; whoever still looks at it reads it once more."""
        with self._lock:
            self._reader.let_go()

    def whole(self, tensor: Tensor) -> torch.Tensor:
        """The tensor, all of it in memory where it is not mapped."""
        with self._lock:
            storage = tensor.storage
            kept = storage is not None and self._reader.maps(storage)
            if storage is not None and storage.compressed and storage.nbytes > _INFLATED:
                raise DamagedError(f"Storage {storage.key} is compressed and too large to be held whole.")
            made = make_tensor(tensor, self._reader if kept else self._once(storage))
        if isinstance(made, Inert):
            raise DamagedError("It is no plain tensor.")
        return made.detach()

    def pieces(self, tensor: Tensor, start: int, stop: int, most: int) -> Iterator[torch.Tensor]:
        """The elements ``start`` to ``stop`` of a tensor without gaps, at most ``most`` at a time."""
        if tensor.storage is None:  # they stand in the pickle: that is in memory as a whole
            yield from self.whole(tensor)[start:stop].split(most)
        elif tensor.storage.compressed:
            yield from self._inflated(tensor, tensor.storage, most)
        else:
            for at in range(start, stop, most):
                yield self._piece(tensor, tensor.storage, at, min(most, stop - at))

    def _once(self, *storages: Storage | None) -> StorageReader:
        wanted = tuple([each for each in storages if each is not None])
        return StorageReader(replace(self._checkpoint, storages=wanted), self._source)

    def _piece(self, tensor: Tensor, storage: Storage, at: int, count: int) -> torch.Tensor:
        """Some elements, as a storage of their own."""
        size = tensor.dtype.bits // 8
        extent, offset, length = _require_all(storage), (tensor.offset + at) * size, count * size
        if offset + length > storage.nbytes:
            raise DamagedError(f"The bytes of storage {storage.key} are not all in the file.")
        part = replace(storage, nbytes=length, extent=Extent(extent.file, extent.offset + offset, length))
        return self.whole(replace(tensor, storage=part, offset=0, shape=(count,), stride=(1,)))

    def _inflated(self, tensor: Tensor, storage: Storage, most: int) -> Iterator[torch.Tensor]:
        """All elements of a compressed record, unpacked bit by bit."""
        import torch

        dtype = getattr(torch, tensor.dtype.name)
        size = tensor.dtype.bits // 8
        skip, left = tensor.offset * size, tensor.numel * size
        held = bytearray()
        for plain in self._plain(storage, most * size):
            held += plain
            if skip:
                gone = min(skip, len(held))
                del held[:gone]
                skip -= gone
            ready = min(left, len(held)) // size * size
            if ready:
                left -= ready
                values = torch.frombuffer(bytearray(held[:ready]), dtype=dtype)
                if self._reader.swapped and storage.dtype is not None and size > 1:
                    values.untyped_storage().byteswap(dtype)
                yield values
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
    """The place of the bytes of a storage. Raises DamagedError where the file has fewer than it declares."""
    extent = storage.extent
    if extent is None or (not storage.compressed and extent.length < storage.nbytes):
        raise DamagedError(f"The bytes of storage {storage.key} are not all in the file.")
    return extent


_LIBRARY = os.path.join("lib", "libtorch_python.so")  # and what it needs: libtorch_cpu.so, which is most of it


def load_beforehand() -> None:
    """Load what ``import torch`` would load while it keeps every other thread waiting, for a quarter of a second.

    A call of a function in C does not. Where the library is not to be found, or not to be loaded, nothing is done:
    importing finds it, or says what is wrong.
    """
    if "torch" in sys.modules or sys.platform != "linux":
        return
    spec = find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = os.path.join(folder, _LIBRARY)
        if os.path.exists(path):
            _load(path)


def _load(path: str) -> None:
    from ctypes import CDLL, c_char_p, c_int, c_void_p

    load = CDLL(None).dlopen
    load.argtypes, load.restype = (c_char_p, c_int), c_void_p
    load(os.fsencode(path), os.RTLD_NOW)
