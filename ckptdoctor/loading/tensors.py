"""Makes tensors with their values out of those that a checkpoint describes, in whichever library they are wanted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ckptdoctor.checkpoint import Tensor, show_path
from ckptdoctor.checkpoint.tensor import storage_span
from ckptdoctor.errors import DamagedError
from ckptdoctor.formats.folders.coverage import uncovered
from ckptdoctor.loading.inert import Inert
from ckptdoctor.loading.storages import StorageReader
from ckptdoctor.wording import count, plural

COMPRESSED_LAYOUTS = ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


class TensorMaker(ABC):
    """Makes the tensors of one checkpoint: same dtype, shape, stride and sharing, on the CPU.

    What of it differs from library to library is abstract.
    """

    def __init__(self, storages: StorageReader) -> None:
        self._storages = storages

    def make(self, tensor: Tensor) -> Any:
        """Return the tensor with its values. Kinds that only their own class can make are ``Inert``, with their parts.

        Raises DamagedError when its bytes are not all there, the view does not fit its storage, or the library cannot
        have it.
        """
        made = self._bare(tensor)
        if isinstance(made, Inert):
            return made
        with judged(tensor):
            return self._dressed(tensor, made)

    def _bare(self, tensor: Tensor) -> Any:
        if tensor.chunks:
            return self._assembled(tensor)
        if tensor.layout == "sparse_coo" or tensor.layout in COMPRESSED_LAYOUTS:
            return self._sparse(tensor)
        if tensor.dtype.kind == "quantized":
            return self._quantized(tensor)
        if tensor.parts or tensor.layout != "strided":
            return self._inert(tensor)
        if tensor.storage is None and tensor.values is None:
            return self._meta(tensor) if tensor.device == "meta" else self._inert(tensor)
        return self._strided(tensor)

    def _bytes(self, tensor: Tensor) -> memoryview:
        """Return the bytes that the tensor views: of its storage, or out of the pickle.

        Raises DamagedError for too few.

        torch lets a storage grow where a view reaches past its end, if it can: the view would show whatever was in
        memory.
        """
        if tensor.values is not None:  # of a device without storages, or taken out of the pickle's text
            place, found = "values", self._storages.held(tensor.values)
        else:
            assert tensor.storage is not None
            place, found = f"storage {tensor.storage.key}", self._storages.get(tensor.storage)
        with judged(tensor):
            reach = storage_span(tensor)[1]
        if reach * tensor.dtype.bits > found.nbytes * 8 and 0 not in tensor.shape:
            there = found.nbytes * 8 // tensor.dtype.bits
            raise damaged(tensor, f"does not fit its {place}: it reaches to element {count(reach)} of {there:,}")
        return found

    def _assembled(self, tensor: Tensor) -> Any:
        """Return a tensor that was saved in pieces: each is copied to where it belongs."""
        there = sum([chunk.numel for _, chunk in tensor.chunks])
        if there != tensor.numel:
            raise damaged(
                tensor,
                f"has {plural(tensor.numel, 'element')}, but its pieces hold {there:,}; ckptdoctor check "
                "shows what is missing.",
            )
        left = uncovered(tensor.shape, [(start, chunk.shape) for start, chunk in tensor.chunks])
        if left:
            raise damaged(tensor, f"cannot be put together: {left}; ckptdoctor check shows what is wrong.")
        made = self._empty(tensor)
        for start, chunk in tensor.chunks:
            piece = self.make(chunk)
            if isinstance(piece, Inert):
                raise damaged(tensor, "has a piece that is not a plain tensor.")
            with judged(tensor):
                place = tuple([slice(first, first + size) for first, size in zip(start, chunk.shape, strict=True)])
                self._copy(made[place], piece)
        return made

    def _inert(self, tensor: Tensor) -> Inert:
        state: dict[str, Any] = {"dtype": tensor.dtype.name, "shape": tensor.shape, "layout": tensor.layout}
        state.update(tensor.details)
        parts = [self.make(part) for part in tensor.parts]
        return Inert(tensor.subclass or tensor.rebuild, state=state, items=parts)

    @abstractmethod
    def _strided(self, tensor: Tensor) -> Any:
        """Return the view of its bytes."""

    @abstractmethod
    def _dressed(self, tensor: Tensor, made: Any) -> Any:
        """Return the same values with the conj and neg bits, and anything else that the library keeps with them."""

    @abstractmethod
    def _empty(self, tensor: Tensor) -> Any:
        """Return a tensor of this shape and dtype, to be filled."""

    @abstractmethod
    def _copy(self, place: Any, piece: Any) -> None:
        """Fill a part of a tensor."""

    @abstractmethod
    def _meta(self, tensor: Tensor) -> Any:
        """Return a tensor that was saved without values."""

    @abstractmethod
    def _sparse(self, tensor: Tensor) -> Any:
        """Return a tensor of indices and values."""

    @abstractmethod
    def _quantized(self, tensor: Tensor) -> Any:
        """Return a tensor of integers with scales."""

    @abstractmethod
    def size(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        """Return a torch.Size. Raises TypeError, ValueError or RuntimeError for sizes that are not numbers."""

    @abstractmethod
    def dtype(self, name: str) -> Any:
        """Return the dtype of torch that is called so, as a value."""

    @abstractmethod
    def device(self, name: str) -> Any:
        """Return the device of torch that is called so, as a value, or None where it stays ``Inert``.

        Raises RuntimeError.
        """


@contextmanager
def judged(tensor: Tensor) -> Iterator[None]:
    """Call a library: what it raises for the numbers of a tensor is damage, and says of which."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError, IndexError, MemoryError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise damaged(tensor, f"cannot be a tensor: {said}") from error


def damaged(tensor: Tensor, what: str) -> DamagedError:
    """Return the error that names the tensor, and the byte at which its values begin where they are in the file."""
    extent = None if tensor.storage is None else tensor.storage.extent
    return DamagedError(f"{show_path(tensor.path)} {what}", offset=None if extent is None else extent.offset)
