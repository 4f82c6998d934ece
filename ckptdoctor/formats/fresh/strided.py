"""Gives the bytes of single tensors in C order, wherever they are: as ranges to copy where that is possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from ckptdoctor.checkpoint import Storage, Tensor, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride, is_contiguous, storage_span
from ckptdoctor.edits.elements import Elements, Joined, NewStorage, View, seen, views, width_of
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.fresh.reading import ComputedBytes, Place, of_storage
from ckptdoctor.wording import plural
from ckptdoctor.writing.recipe import Copy, Generated, Literal, Segment

# classes of tensors that are nothing but their values
_PLAIN_CLASSES = (None, "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")


def refusal(tensor: Tensor) -> str | None:
    """Return why the tensor is not a plain run of elements that another container could hold, or None where it is."""
    if tensor.rebuild.endswith("Storage"):
        return "is a storage that was saved on its own"
    if (tensor.subclass or "").endswith(".DTensor"):
        return "is a DTensor, and other processes have parts of it: save full tensors (ckptdoctor explain X810)"
    if tensor.subclass not in _PLAIN_CLASSES:
        return f"is a {tensor.subclass}"
    if tensor.layout != "strided":
        return f"is {tensor.layout}: densify it first"
    if tensor.dtype.kind == "quantized" or tensor.parts:
        return "is quantized: dequantize it first"
    if any(name in ("conj", "neg") and value for name, value in tensor.details):
        return "is a lazy conjugate or negative: call resolve_conj() and resolve_neg() before saving"
    if tensor.chunks:
        reasons = [refusal(chunk) for _, chunk in tensor.chunks]
        return next((reason for reason in reasons if reason is not None), None)
    if tensor.storage is None and tensor.values is None:
        return "has no values in the file (it is on the meta device)" if tensor.numel else None
    return _missing(tensor)


def _missing(tensor: Tensor) -> str | None:
    """Return what is wrong with the bytes of the tensor."""
    span = storage_span(tensor)
    if min(span[0], *tensor.stride, 0) < 0 or any(size < 0 for size in tensor.shape):
        return "has an invalid shape"
    reach = (span[1] * tensor.dtype.bits + 7) // 8 if tensor.numel else 0
    if tensor.storage is None:
        have = tensor.values.nbytes if tensor.values is not None else 0
        return "has fewer values than its shape requires" if reach > have else None
    storage = tensor.storage
    there = 0 if storage.extent is None else storage.extent.length
    if reach > storage.nbytes or (reach > there and not storage.compressed and not isinstance(storage, NewStorage)):
        return "is not complete in the file"
    if tensor.dtype.bits % 8 and not (is_contiguous(tensor) and tensor.offset * tensor.dtype.bits % 8 == 0):
        return f"is {tensor.dtype.name} with gaps between its elements"
    return None


def length(tensor: Tensor) -> int:
    """Return how many bytes the elements take without gaps."""
    return (tensor.numel * tensor.dtype.bits + 7) // 8


def turn_of(storage: Storage | None) -> int:
    """Return how many bytes are turned together where values are big-endian: torch goes by the class of the storage."""
    if storage is None or storage.dtype is None:
        return 1
    width = max(1, storage.dtype.bits // 8)
    return width // 2 if storage.dtype.kind == "complex" else width


def segments(tensor: Tensor, swapped: bool = False) -> tuple[Segment, ...]:
    """Return the elements in C order, of a tensor without ``refusal``.

    ``swapped``: the bytes in files are big-endian.
    """
    size = length(tensor)
    if not size:
        return ()
    storage = tensor.storage
    turn = turn_of(storage) if swapped else 1
    if tensor.chunks or isinstance(storage, NewStorage) or not is_contiguous(tensor):
        found, places = elements(tensor)
        copies = _copies(found, places) if turn == 1 else None
        return (Generated(size, ComputedBytes(found, places, turn)),) if copies is None else tuple(copies)
    begin = tensor.offset * tensor.dtype.bits // 8
    if storage is None:
        assert tensor.values is not None
        return (Literal(bytes(tensor.values.cast("B")[begin : begin + size])),)
    if storage.compressed or turn > 1:
        return (Generated(size, of_storage(storage, begin, size, turn)),)
    assert storage.extent is not None
    return (Copy(storage.extent.offset + begin, size, storage.extent.file),)


def tensor_of(storage: NewStorage) -> Tensor:
    """Return a tensor that shows all of it."""
    dtype = storage.dtype or BY_NAME["uint8"]
    return Tensor((), dtype, (storage.nbytes * 8 // dtype.bits,), (1,), storage)


def _copies(found: Elements, places: Mapping[str, Place]) -> list[Segment] | None:
    """Return elements that are in files as they are, one run after another.

    None where they must be rearranged, or computed.
    """
    if isinstance(found, Joined):
        if prod(found.shape[: found.dim]) != 1:
            return None
        made: list[Segment] = []
        for part in found.parts:
            copies = _copies(part, places)
            if copies is None:
                return None
            made += copies
        return made
    if not isinstance(found, View) or not found.contiguous or found.held is not None:
        return None
    storage = places[found.source].storage
    if storage.extent is None or storage.compressed:
        return None
    nbytes = prod(found.shape) * found.width
    return [Copy(storage.extent.offset + found.start, nbytes, storage.extent.file)] if nbytes else []


def elements(tensor: Tensor) -> tuple[Elements, dict[str, Place]]:
    """Return the same as views, and where the storages are that they name."""
    places: dict[str, Place] = {}
    if tensor.chunks:
        if any(len(origin) != len(tensor.shape) for origin, _ in tensor.chunks):
            raise _uneven(tensor)
        found = _assembled(tensor, tensor.chunks, 0, places)
        if found.shape != tensor.shape:
            raise _uneven(tensor)
        return found, places
    storage = tensor.storage
    if isinstance(storage, NewStorage) and width_of(storage.holds) * 8 == tensor.dtype.bits:
        made = seen(storage.holds, tensor.offset, tensor.shape, tensor.stride)
        if made is not None:
            return made, {each.source: Place(storage.of[each.source]) for each in views(made) if each.held is None}
    return _view(tensor, places), places


def _view(tensor: Tensor, places: dict[str, Place]) -> View:
    width = tensor.dtype.bits // 8
    start = tensor.offset * width
    if tensor.storage is None:
        held = tensor.values.cast("B") if tensor.values is not None else memoryview(b"")
        return View(f"values {id(held)}", start, width, tensor.shape, tensor.stride, held)
    name = _name(tensor.storage)
    places[name] = Place(tensor.storage)
    stride = tensor.stride if len(tensor.stride) == len(tensor.shape) else contiguous_stride(tensor.shape)
    return View(name, start, width, tensor.shape, stride)


def _name(storage: Storage) -> str:
    where = storage.extent
    return f"{storage.key} {storage.nbytes}" if where is None else f"{where.file} {where.offset} {where.length}"


_Chunk = tuple[tuple[int, ...], Tensor]


def _assembled(tensor: Tensor, pieces: Iterable[_Chunk], dim: int, places: dict[str, Place]) -> Elements:
    """Return the pieces put together along this dimension and those behind it.

    Raises RefusedError where they do not fit.
    """
    rows: dict[int, list[_Chunk]] = {}
    for origin, chunk in pieces:
        if chunk.numel or not tensor.numel:
            rows.setdefault(origin[dim] if dim < len(origin) else 0, []).append((origin, chunk))
    if dim == len(tensor.shape):
        if len(rows) != 1 or len(rows[0]) != 1:
            raise _uneven(tensor)
        return _view(rows[0][0][1], places)
    parts: list[Elements] = []
    at = 0
    for begin in sorted(rows):
        part = _assembled(tensor, rows[begin], dim + 1, places)
        if begin != at or (parts and _others(part, dim) != _others(parts[0], dim)):
            raise _uneven(tensor)
        parts.append(part)
        at += part.shape[dim]
    if not parts:
        raise _uneven(tensor)
    first = parts[0]
    return first if len(parts) == 1 else Joined(tuple(parts), dim, (*first.shape[:dim], at, *first.shape[dim + 1 :]))


def _others(part: Elements, dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return part.shape[:dim], part.shape[dim + 1 :]


def _uneven(tensor: Tensor) -> RefusedError:
    pieces = sum(prod(chunk.shape) for _, chunk in tensor.chunks)
    return RefusedError(
        f"{show_path(tensor.path)} was saved in {plural(len(tensor.chunks), 'piece')} with {pieces:,} of its "
        f"{plural(tensor.numel, 'element')}, which do not fit together without gaps and overlaps."
    )
