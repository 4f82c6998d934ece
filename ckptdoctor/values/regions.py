"""Boxes of a tensor, of each dimension some indexes: no more bytes are read than what lies between them asks for.

They are read, never mapped: a file that somebody truncates meanwhile is an error here, and the end of a process that
has it mapped.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import prod
from threading import Lock
from typing import TYPE_CHECKING, Any

from ckptdoctor.checkpoint import Checkpoint, Source, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.errors import DamagedError
from ckptdoctor.loading.tensors import COMPRESSED_LAYOUTS
from ckptdoctor.values.flat_chunks import UnreadError, require_values

if TYPE_CHECKING:
    import torch


Runs = Sequence[range]  # neighbouring indexes of one dimension, several times
Picks = Sequence[Runs]  # for each dimension

_STEP = 8 << 20  # bytes that are read between two looks at whether to go on
_NEAR, _FAR = 16 << 10, 1 << 20  # gaps that are read over: here, and where each read is a request over a network
_DENSE = 4  # times the bytes that are wanted may be read in one go
_MOST = 256 << 20  # bytes that are held in one go
_INFLATED = 64 << 20  # a compressed record is unpacked as a whole, up to this size
_WHOLE = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}  # what quantized dtypes are stored as
# dtypes of which torch computes nothing, and one that holds their values
_WIDER = {"complex32": "complex64", "uint16": "int32", "uint32": "int64"}


def plain(tensor: Tensor) -> Tensor:
    """The tensor whose values are to be looked at: the inner one of a sparse tensor or a wrapper.

    Raises UnreadError where there is none.
    """
    if tensor.layout == "sparse_coo" or tensor.layout in COMPRESSED_LAYOUTS:
        if not tensor.parts:
            raise UnreadError("its values are not in the file")
        return plain(tensor.parts[-1])  # indices before values, in every sparse layout
    if tensor.dtype.kind == "quantized" or tensor.chunks:
        return tensor
    if tensor.parts or tensor.layout != "strided":
        if len(tensor.parts) != 1:
            kind = (tensor.subclass or tensor.layout).rpartition(".")[2]
            raise UnreadError(f"a {kind} is made of other tensors in its own way")
        return plain(tensor.parts[0])
    require_values(tensor)
    return tensor


class Boxes:
    """Reads boxes of the tensors of one checkpoint. Raises StoppedError once nobody wants the rest of ``work``."""

    def __init__(self, checkpoint: Checkpoint, source: Source, work: Work, lock: Lock | None = None) -> None:
        self._source = source
        self._work = work
        self._lock = lock or nullcontext()
        self._swapped = checkpoint.big_endian
        self._inflated: dict[str, bytes] = {}
        self._gap = _FAR if source.distant else _NEAR

    def read(self, tensor: Tensor, picks: Picks) -> torch.Tensor:
        """The values of a plain tensor at every combination of these indexes, in a dtype that torch computes with."""
        if len(tensor.stride) != len(tensor.shape) and not tensor.chunks:
            raise UnreadError("it has not as many strides as dimensions")
        if tensor.chunks:
            return self._assembled(tensor, picks)
        if tensor.dtype.kind == "quantized":
            return self._quantized(tensor, picks)
        details = dict(tensor.details)
        values = _computable(self._runs(tensor, picks), tensor.dtype.name)
        if details.get("conj"):
            values = values.conj().resolve_conj()
        return -values if details.get("neg") else values

    def _runs(self, tensor: Tensor, picks: Picks) -> torch.Tensor:
        import torch

        for dim, runs in enumerate(picks):
            if len(runs) > 1:
                parts = [self._runs(tensor, (*picks[:dim], (run,), *picks[dim + 1 :])) for run in runs]
                return torch.cat([_bits(part) for part in parts], dim).view(parts[0].dtype)
        return self._box(tensor, [runs[0] for runs in picks])

    def _box(self, tensor: Tensor, box: list[range]) -> torch.Tensor:
        import torch

        dtype = _torch_dtype(tensor)
        shape, size = [len(each) for each in box], max(1, tensor.dtype.bits // 8)
        if 0 in shape:
            return torch.empty(shape, dtype=dtype)
        span = 1 + sum([(count - 1) * step for count, step in zip(shape, tensor.stride, strict=True)])
        held = _held(shape, tensor.stride)
        if span * size > max(self._gap, _DENSE * held * size):
            return self._halved(tensor, box)
        if max(span, prod(shape)) * size > _MOST:
            raise UnreadError("too much of it would have to be held at once")
        first = tensor.offset + sum([each.start * step for each, step in zip(box, tensor.stride, strict=True)])
        data = torch.frombuffer(self._bytes(tensor, first * size, span * size), dtype=dtype)
        if self._swapped and size > 1 and tensor.values is None:
            data.untyped_storage().byteswap(dtype)
        return data.as_strided(shape, tensor.stride).contiguous()

    def _halved(self, tensor: Tensor, box: list[range]) -> torch.Tensor:
        """The same in two, cut where the elements lie furthest apart."""
        import torch

        self._work.go_on()
        dim = max(range(len(box)), key=lambda each: (len(box[each]) - 1) * tensor.stride[each])
        middle = len(box[dim]) // 2
        halves = [
            self._box(tensor, [*box[:dim], half, *box[dim + 1 :]]) for half in (box[dim][:middle], box[dim][middle:])
        ]
        return torch.cat([_bits(half) for half in halves], dim).view(halves[0].dtype)

    def _bytes(self, tensor: Tensor, start: int, length: int) -> bytearray:
        """Some bytes of what a tensor is a view of."""
        storage = tensor.storage
        if tensor.values is not None:
            held: bytes | memoryview = tensor.values.cast("B")[start : start + length]
            return _whole(held, start, length)
        if storage is None:
            raise UnreadError("it was saved without values")
        if storage.compressed:
            return _whole(self._unpacked(storage)[start : start + length], start, length)
        extent = storage.extent
        if extent is None or start < 0 or start + length > min(storage.nbytes, extent.length):
            raise DamagedError(f"The bytes of storage {storage.key} are not all in the file.")
        data = bytearray()
        while len(data) < length:
            self._work.go_on()
            with self._lock:
                part = self._source.part(extent.file)
                data += part.read(extent.offset + start + len(data), min(_STEP, length - len(data)))
        return data

    def _unpacked(self, storage: Storage) -> bytes:
        extent = storage.extent
        if extent is None or max(storage.nbytes, extent.length) > _INFLATED:
            raise UnreadError("its record is compressed and too large to be looked into")
        if storage.key not in self._inflated:
            with self._lock:
                packed = self._source.part(extent.file).read(extent.offset, extent.length)
            try:
                self._inflated = {storage.key: zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, storage.nbytes)}
            except zlib.error as error:
                raise DamagedError(f"The compressed record of storage {storage.key} is damaged: {error}.") from None
        return self._inflated[storage.key]

    def _assembled(self, tensor: Tensor, picks: Picks) -> torch.Tensor:
        """Of a tensor that was saved in pieces: from each piece what it has of the box."""
        import torch

        if sum([piece.numel for _, piece in tensor.chunks]) != tensor.numel:
            raise UnreadError("pieces of it are missing")
        made = None
        shape = [sum(map(len, runs)) for runs in picks]
        for start, piece in tensor.chunks:
            shared = [_shared(runs, first, n) for runs, first, n in zip(picks, start, piece.shape, strict=True)]
            if [] in [inside for inside, _ in shared]:
                continue
            part = self.read(plain(piece), [inside for inside, _ in shared])
            made = torch.zeros(shape, dtype=part.dtype) if made is None else made
            places = [torch.cat([torch.arange(each.start, each.stop) for each in where]) for _, where in shared]
            made[torch.meshgrid(*places, indexing="ij") if places else ()] = part
        return torch.zeros(shape) if made is None else made

    def _quantized(self, tensor: Tensor, picks: Picks) -> torch.Tensor:
        """The numbers that quantized ones stand for: their distance from the zero point, times the scale."""
        details = dict(tensor.details)
        if tensor.dtype.name not in _WHOLE:
            raise UnreadError(f"{tensor.dtype.name} is a packed dtype")
        stored = replace(tensor, dtype=BY_NAME[_WHOLE[tensor.dtype.name]], parts=(), details=())
        values = self._runs(stored, picks).double()
        if details.get("scheme") == "per_tensor_affine":
            return ((values - float(details["zero_point"])) * float(details["scale"])).float()
        axis = int(details.get("axis", -1))
        if len(tensor.parts) != 2 or not 0 <= axis < len(tensor.shape):
            raise UnreadError("its scales are not known")
        shape = [-1 if dim == axis else 1 for dim in range(len(tensor.shape))]
        scale, zero = (self.read(plain(part), [picks[axis]]).double().view(shape) for part in tensor.parts)
        return ((values - zero) * scale).float()


def _held(shape: Sequence[int], stride: Sequence[int]) -> int:
    """The number of different elements in a box: expanded dimensions show the same again."""
    return prod([count for count, step in zip(shape, stride, strict=True) if step])


def _whole(data: bytes | memoryview, start: int, length: int) -> bytearray:
    if start < 0 or len(data) != length:
        raise DamagedError("Its view is larger than what it is a view of.")
    return bytearray(data)


def _shared(runs: Runs, first: int, count: int) -> tuple[list[range], list[range]]:
    """The overlap of runs of a dimension with a piece of it: as indexes of the piece, and as places of the box."""
    inside, places, at = [], [], 0
    for run in runs:
        start, stop = max(run.start, first), min(run.stop, first + count)
        if start < stop:
            inside.append(range(start - first, stop - first))
            places.append(range(at + start - run.start, at + stop - run.start))
        at += len(run)
    return inside, places


def _bits(values: torch.Tensor) -> torch.Tensor:
    """The same elements as integers: not all that is done to integers is done to every dtype."""
    import torch

    same: dict[int, Any] = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return values.view(same[values.element_size()]) if values.element_size() in same else values


def _computable(values: torch.Tensor, name: str) -> torch.Tensor:
    import torch

    if name.startswith("float8"):
        return values.float()
    if name == "uint64":  # exact where it can be: as integers up to the largest that torch computes with
        return values.view(torch.int64) if not (values.view(torch.int64) < 0).any() else values.double()
    return values.to(getattr(torch, _WIDER[name])) if name in _WIDER else values


def _torch_dtype(tensor: Tensor) -> torch.dtype:
    """torch's dtype of this name. Raises UnreadError where this torch has none."""
    import torch

    name = "bool" if tensor.dtype.kind == "bool" else tensor.dtype.name
    made = getattr(torch, name, None)
    if not isinstance(made, torch.dtype):
        raise UnreadError(f"torch {torch.__version__} has no {name}")
    return made
