"""A box of a tensor has some indexes of each dimension: only the bytes between them are read.

They are read, never mapped: a file that is truncated meanwhile is an error here, but would end a process that has it
mapped.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from math import prod
from threading import Lock

import numpy as np

from ckptdoctor.casting.arrays import HALVES, Array, array_of, held_as, real_parts, widened
from ckptdoctor.checkpoint import Checkpoint, Source, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.errors import DamagedError
from ckptdoctor.loading.tensors import COMPRESSED_LAYOUTS
from ckptdoctor.noun import replace

Runs = Sequence[range]  # neighbouring indexes of one dimension, several times
Picks = Sequence[Runs]  # for each dimension

_STEP = 8 << 20  # bytes that are read between two looks at whether to go on
_NEAR, _FAR = 16 << 10, 1 << 20  # gaps that are read over: here, and where each read is a request over a network
_DENSE = 4  # times the bytes that are wanted may be read in one go
_MOST = 256 << 20  # bytes that are held in one go
_INFLATED = 64 << 20  # a compressed record is unpacked as a whole, up to this size
_PACKED = ("float4_e2m1fn_x2", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "quint4x2", "quint2x4")
_WHOLE = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}  # what quantized dtypes are stored as


class UnreadError(Exception):
    """The values of a tensor cannot be looked at; its text is the reason."""


def plain(tensor: Tensor) -> Tensor:
    """Return the tensor whose values are to be looked at: the inner one of a sparse tensor or a wrapper.

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
            raise UnreadError(f"a {kind} consists of other tensors in its own way")
        return plain(tensor.parts[0])
    require_values(tensor)
    return tensor


def require_values(tensor: Tensor) -> None:
    """Raises UnreadError for a tensor without values of its own, or of a dtype that nothing can be computed with."""
    dtype = tensor.dtype
    if dtype.name in _PACKED or dtype.kind == "bits":
        raise UnreadError(f"{dtype.name} is a packed dtype")
    if dtype.kind in ("int", "uint") and dtype.name.lstrip("uint") not in ("8", "16", "32", "64"):
        raise UnreadError(f"torch computes nothing with {dtype.name}")
    if tensor.storage is None and tensor.values is None:
        raise UnreadError("it was saved without values")


class Boxes:
    """Reads boxes of the tensors of one checkpoint. Raises StoppedError once nobody wants the rest of ``work``."""

    def __init__(
        self, checkpoint: Checkpoint, source: Source, work: Work, lock: Lock | None = None, near: int = _NEAR
    ) -> None:
        self._source = source
        self._work = work
        self._lock = lock or nullcontext()
        self._swapped = checkpoint.big_endian
        self._inflated: dict[str, bytes] = {}
        self._gap = max(near, _FAR) if source.distant else near

    def read(self, tensor: Tensor, picks: Picks) -> Array:
        """Return a plain tensor's values at all combinations of these indexes, in a dtype that NumPy computes with."""
        if len(tensor.stride) != len(tensor.shape) and not tensor.chunks:
            raise UnreadError("its numbers of strides and dimensions differ")
        if tensor.chunks:
            return self._assembled(tensor, picks)
        if tensor.dtype.kind == "quantized":
            return self._quantized(tensor, picks)
        details = dict(tensor.details)
        values = _computable(self.held(tensor, picks), tensor.dtype.name)
        if details.get("conj"):
            values = values.conj()
        return -values if details.get("neg") else values

    def held(self, tensor: Tensor, picks: Picks) -> Array:
        """Return them as they are stored: as ``casting.arrays`` holds them, neither conjugated nor negated."""
        for dim, runs in enumerate(picks):
            if len(runs) > 1:
                parts = [self.held(tensor, (*picks[:dim], (run,), *picks[dim + 1 :])) for run in runs]
                return np.concatenate(parts, dim)
        return self._box(tensor, [runs[0] for runs in picks])

    def _box(self, tensor: Tensor, box: list[range]) -> Array:
        shape, size = [len(each) for each in box], max(1, tensor.dtype.bits // 8)
        if 0 in shape:
            return np.empty(shape, held_as(tensor.dtype.name))
        span = 1 + sum([(count - 1) * step for count, step in zip(shape, tensor.stride, strict=True)])
        held = _held(shape, tensor.stride)
        if span * size > max(self._gap, _DENSE * held * size):
            return self._halved(tensor, box)
        if max(span, prod(shape)) * size > _MOST:
            raise UnreadError("it would take too much memory")
        first = tensor.offset + sum([each.start * step for each, step in zip(box, tensor.stride, strict=True)])
        data = array_of(self._bytes(tensor, first * size, span * size), tensor.dtype.name)
        if self._swapped and size > 1 and tensor.values is None:
            width = size // 2 if tensor.dtype.kind == "complex" else size
            data.view(f"u{width}").byteswap(inplace=True)
        strides = [step * size for step in tensor.stride]
        made: Array = np.lib.stride_tricks.as_strided(data, shape, strides).copy()
        return made

    def _halved(self, tensor: Tensor, box: list[range]) -> Array:
        """Return the same in two halves, cut where the elements are furthest apart."""
        self._work.go_on()
        dim = max(range(len(box)), key=lambda each: (len(box[each]) - 1) * tensor.stride[each])
        middle = len(box[dim]) // 2
        halves = [
            self._box(tensor, [*box[:dim], half, *box[dim + 1 :]]) for half in (box[dim][:middle], box[dim][middle:])
        ]
        return np.concatenate(halves, dim)

    def _bytes(self, tensor: Tensor, start: int, length: int) -> bytearray:
        """Return some bytes of what a tensor is a view of."""
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
            raise UnreadError("its record is compressed and too large to read")
        held = self._inflated.get(storage.key)
        if held is None:
            with self._lock:
                packed = self._source.part(extent.file).read(extent.offset, extent.length)
            try:
                held = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, storage.nbytes)
            except zlib.error as error:
                raise DamagedError(f"The compressed record of storage {storage.key} is damaged: {error}.") from None
            self._inflated = {storage.key: held}
        return held

    def _assembled(self, tensor: Tensor, picks: Picks) -> Array:
        """Return the box of a tensor that was saved in pieces: from each of them what it has of it."""
        if sum([piece.numel for _, piece in tensor.chunks]) != tensor.numel:
            raise UnreadError("pieces of it are missing")
        made = None
        shape = [sum(map(len, runs)) for runs in picks]
        for start, piece in tensor.chunks:
            shared = [_shared(runs, first, n) for runs, first, n in zip(picks, start, piece.shape, strict=True)]
            if [] in [inside for inside, _ in shared]:
                continue
            part = self.read(plain(piece), [inside for inside, _ in shared])
            made = np.zeros(shape, part.dtype) if made is None else made
            places = [np.concatenate([np.arange(each.start, each.stop) for each in where]) for _, where in shared]
            made[np.ix_(*places) if places else ()] = part
        return np.zeros(shape, np.float32) if made is None else made

    def _quantized(self, tensor: Tensor, picks: Picks) -> Array:
        """Return the numbers that quantized ones stand for: their distance from the zero point, times the scale."""
        details = dict(tensor.details)
        if tensor.dtype.name not in _WHOLE:
            raise UnreadError(f"{tensor.dtype.name} is a packed dtype")
        stored = replace(tensor, dtype=BY_NAME[_WHOLE[tensor.dtype.name]], parts=(), details=())
        values = self.held(stored, picks).astype(np.float64)
        if details.get("scheme") == "per_tensor_affine":
            values -= float(details["zero_point"])
            values *= float(details["scale"])
            return values.astype(np.float32)
        axis = int(details.get("axis", -1))
        if len(tensor.parts) != 2 or not 0 <= axis < len(tensor.shape):
            raise UnreadError("its scales are unknown")
        shape = [-1 if dim == axis else 1 for dim in range(len(tensor.shape))]
        scale, zero = (self.read(plain(part), [picks[axis]]).astype(np.float64) for part in tensor.parts)
        values -= zero.reshape(shape)
        values *= scale.reshape(shape)
        return values.astype(np.float32)


def _held(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of different elements in a box: expanded dimensions show the same again."""
    return prod([count for count, step in zip(shape, stride, strict=True) if step])


def _whole(data: bytes | memoryview, start: int, length: int) -> bytearray:
    if start < 0 or len(data) != length:
        raise DamagedError("Its view is larger than its storage.")
    return bytearray(data)


def _shared(runs: Runs, first: int, count: int) -> tuple[list[range], list[range]]:
    """Return the overlap of runs of a dimension with a piece: as indexes of the piece, and as places of the box."""
    inside, places, at = [], [], 0
    for run in runs:
        start, stop = max(run.start, first), min(run.stop, first + count)
        if start < stop:
            inside.append(range(start - first, stop - first))
            places.append(range(at + start - run.start, at + stop - run.start))
        at += len(run)
    return inside, places


def computable_dtype(name: str) -> str:
    """Return the dtype of what ``Boxes.read`` gives."""
    if name == "complex32":
        return "complex64"
    return "float32" if name in HALVES or name.startswith("float8") else name


def _computable(values: Array, name: str) -> Array:
    if name == "bool":
        return values.view(np.bool_)
    if name == "complex32":
        parts = real_parts(values.reshape(-1), name)
        made: Array = widened(parts, "float16").view(np.complex64).reshape(values.shape)
        return made
    if name == "uint64":  # exact where it can be: as integers up to the largest with a sign
        signed = values.view(np.int64)
        return values.astype(np.float64) if (signed < 0).any() else signed
    return widened(values, name) if values.dtype.kind == "u" and not name.startswith("uint") else values
