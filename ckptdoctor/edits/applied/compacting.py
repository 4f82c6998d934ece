"""Shrinks storages to what is viewed of them, and gives tensors contiguous storages of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import Checkpoint, Cycle, Extent, Node, Storage, Tensor, show_path
from ckptdoctor.checkpoint.changed_trees import derived, mapped, with_tree
from ckptdoctor.checkpoint.tensor import byte_span
from ckptdoctor.edits import Clone, Compact, MakeContiguous
from ckptdoctor.edits.applied.act import Act, Original
from ckptdoctor.edits.applied.arranging import made_tensor, view_of
from ckptdoctor.edits.elements import Elements
from ckptdoctor.edits.fix import Change
from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import replace

Piece = tuple[int, int]  # first byte of a storage, and how many from there


def compact(checkpoint: Checkpoint, edit: Compact) -> Checkpoint:
    """Raise RefusedError for storages that no tensor views."""
    kept = kept_pieces(checkpoint.tensors, edit.storages)
    for key in edit.storages:
        if key not in kept:
            raise RefusedError(f"No tensor views storage {key}, so there is nothing to shrink it to.")
    storages = {each.key: _shrunk(each, kept[each.key]) for each in checkpoint.storages if each.key in kept}

    def change(node: Tensor | Cycle) -> Node:
        return _shifted(node, storages, kept) if isinstance(node, Tensor) else node

    every = tuple([storages.get(each.key, each) for each in checkpoint.storages])
    return with_tree(replace(checkpoint, storages=every), mapped(checkpoint.tree, change))


def contiguous_storages(
    checkpoint: Checkpoint, edit: MakeContiguous | Clone, original: Original
) -> dict[str, Elements]:
    """Return what each storage that the edit makes holds, by key."""
    wanted, alone = set(edit.paths), isinstance(edit, Clone)
    found = [each for each in checkpoint.tensors if each.path in wanted and each.storage is not None]
    return {
        each.storage.key: original(view_of(old))
        for old in found
        if (each := _contiguous(old, alone)).storage is not None
    }


def kept_pieces(tensors: Iterable[Tensor], storages: Iterable[str]) -> dict[str, tuple[Piece, ...]]:
    """Return the byte ranges of each of these storages that its tensors view, in order, touching ranges made one."""
    spans: dict[str, list[tuple[int, int]]] = {}
    wanted = set(storages)
    for view in views(tensors):
        if view.storage is not None and view.storage.key in wanted:
            spans.setdefault(view.storage.key, []).append(byte_span(view))
    return {key: tuple(_united(each)) for key, each in spans.items()}


def views(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the tensors with bytes of their own: those made of parts give their parts."""
    for tensor in tensors:
        if tensor.storage is not None:
            yield tensor
        if tensor.parts:
            yield from views(tensor.parts)


def _united(spans: Iterable[tuple[int, int]]) -> Iterator[Piece]:
    begin = end = 0
    for start, stop in sorted(span for span in spans if span[0] < span[1]):
        if start > end:
            if end > begin:
                yield begin, end - begin
            begin = start
        end = max(end, stop)
    if end > begin:
        yield begin, end - begin


def narrowed(pieces: Iterable[Piece], kept: Iterable[Piece]) -> tuple[Piece, ...]:
    """Return what is left of ``pieces``, as byte ranges, when only the ranges ``kept`` of what they make up stay."""
    pieces = tuple(pieces)
    found = []
    for start, length in kept:
        passed = 0
        for begin, size in pieces:
            first, last = max(start, passed), min(start + length, passed + size)
            if first < last:
                found.append((begin + first - passed, last - first))
            passed += size
    return tuple(found)


def _shrunk(storage: Storage, pieces: tuple[Piece, ...]) -> Storage:
    nbytes = sum(length for _, length in pieces)
    return _resized(storage, storage.key, nbytes) if nbytes != storage.nbytes else storage


def _resized(storage: Storage, key: str, nbytes: int) -> Storage:
    """Return a storage of another length. Its extent still says where its bytes came from, not where they will be."""
    extent = storage.extent and Extent(storage.extent.file, storage.extent.offset, nbytes)
    return replace(storage, key=key, nbytes=nbytes, extent=extent, crc32=None)


def _shifted(tensor: Tensor, storages: dict[str, Storage], kept: dict[str, tuple[Piece, ...]]) -> Tensor:
    if tensor.parts:
        parts = tuple([_shifted(part, storages, kept) for part in tensor.parts])
        if any(new is not old for new, old in zip(parts, tensor.parts, strict=True)):
            tensor = derived(tensor, parts=parts)
    if tensor.storage is None or tensor.storage.key not in storages:
        return tensor
    storage = storages[tensor.storage.key]
    if 0 in tensor.shape:
        return derived(tensor, storage=storage, offset=0)
    offset = _offset(byte_span(tensor)[0], kept[storage.key]) * 8 // tensor.dtype.bits
    return derived(tensor, storage=storage, offset=offset)


def _offset(byte: int, pieces: tuple[Piece, ...]) -> int:
    """Return where a byte of the old storage is in the new one."""
    passed = 0
    for start, length in pieces:
        if start <= byte < start + length:
            return passed + byte - start
        passed += length
    return passed


def make_contiguous(checkpoint: Checkpoint, edit: MakeContiguous | Clone) -> Checkpoint:
    """Raise RefusedError for paths without a plain tensor."""
    wanted, alone = set(edit.paths), isinstance(edit, Clone)
    seen: set[object] = set()

    def change(node: Tensor | Cycle) -> Node:
        if not isinstance(node, Tensor) or node.path not in wanted:
            return node
        seen.add(node.path)
        return _contiguous(node, alone)

    tree = mapped(checkpoint.tree, change)
    for path in edit.paths:
        if path not in seen:
            raise RefusedError(f"There is no tensor at {show_path(path)} to make contiguous.")
    return with_tree(checkpoint, tree)


def _contiguous(tensor: Tensor, alone: bool) -> Tensor:
    """Return a view of a new storage, its own where it is to be ``alone``.

    Else equal views of one storage share theirs.
    """
    if tensor.storage is None or tensor.parts or tensor.layout != "strided":
        raise RefusedError(f"{show_path(tensor.path)} is not a plain tensor, so it cannot be made contiguous.")
    if tensor.dtype.bits % 8:
        raise RefusedError(f"Elements of {tensor.dtype.name} are not whole bytes, so they cannot be reordered.")
    owner = show_path(tensor.path).encode("utf-8", "surrogatepass") if alone else b""
    return made_tensor(tensor, tensor.path, view_of(tensor), [tensor.storage.nbytes, *owner])


def _told(checkpoint: Checkpoint, edit: Compact, after: Checkpoint) -> Iterator[Change]:
    yield Change("compact", (), ((len(edit.storages), "storage"),))


def _contiguous_told(checkpoint: Checkpoint, edit: MakeContiguous | Clone, after: Checkpoint) -> Iterator[Change]:
    kind = "clone" if isinstance(edit, Clone) else "make-contiguous"
    yield Change(kind, (), ((len(edit.paths), "tensor"),))


COMPACT = Act(compact, _told)
MAKE_CONTIGUOUS = Act(make_contiguous, _contiguous_told, contiguous_storages)
