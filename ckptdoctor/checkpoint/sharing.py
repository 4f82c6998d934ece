"""Tells which tensors share bytes, how many bytes of a storage no tensor sees, and whether two have the same bytes.

Of two tensors a few bytes are compared first, and then all, each read once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Source, Storage, Tensor, walk
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.tensor import byte_span, is_contiguous
from ckptdoctor.noun import noun, replace


@noun
class Shared:
    """Tensors that share elements of one storage. ``tied``: all with the same view, so that they are one tensor."""

    tensors: tuple[Tensor, ...]
    tied: bool


@noun
class StorageUse:
    """A storage, the tensors that view it, and the bytes from the first to the last element of each view, united."""

    storage: Storage
    tensors: tuple[Tensor, ...]
    viewed: int

    @property
    def wasted(self) -> int:
        """Bytes of the storage that no tensor can reach."""
        return max(0, self.storage.nbytes - self.viewed)


def leaves(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the tensors that have bytes of their own: a quantized or sparse tensor or a subclass gives its parts."""
    for tensor in tensors:
        if tensor.storage is not None:
            yield tensor
        if tensor.parts:
            yield from leaves(tensor.parts)


def view_in_file(tensor: Tensor) -> Hashable:
    """Return what tied tensors have in common, and no others. Nothing is tied that has no storage of its own."""
    storage = tensor.storage
    if storage is None or storage.extent is None or tensor.parts or tensor.chunks:
        return tensor.path
    return storage.extent, tensor.form, tensor.details


def lost_without(checkpoint: Checkpoint, paths: Iterable[KeyPath]) -> list[KeyPath]:
    """Return the tensors that the file no longer has once these paths are left out: none tied to them stays."""
    dropped = set(paths)
    gone: list[tuple[KeyPath, Tensor]] = []
    stays: set[Hashable] = set()
    for path, node in walk(checkpoint.tree):
        if not isinstance(node, Tensor):
            continue
        if any(path[:end] in dropped for end in range(len(path) + 1)):
            gone.append((path, node))
        else:
            stays.add(view_in_file(node))
    return [path for path, tensor in gone if view_in_file(tensor) not in stays]


def shared(tensors: Iterable[Tensor]) -> list[Shared]:
    """Return groups of tensors that share elements of one storage; mere neighbours in it are not a group.

    Views interleaved in one span count as sharing.
    """
    _, several = _by_storage(tensors)
    return [Shared(tuple(run), _same_view(run)) for group in several.values() for run in _overlapping(group)]


def storage_use(tensors: Iterable[Tensor]) -> Iterator[StorageUse]:
    """Yield how much of each storage the tensors view, in order of first use."""
    firsts, several = _by_storage(tensors)
    for key, first in firsts.items():
        if first.storage is not None:
            group = several.get(key, [first])
            yield StorageUse(first.storage, tuple(group), _united([byte_span(each) for each in group]))


def bloated(tensors: Iterable[Tensor]) -> tuple[list[StorageUse], int]:
    """Return the storages with bytes that no tensor views, and the bytes of all storages together."""
    firsts, several = _by_storage(tensors)
    suspects = []
    total = 0
    for key, first in firsts.items():
        if first.storage is not None:
            total += first.storage.nbytes
            start, stop = byte_span(first)
            if stop - start < first.storage.nbytes:
                suspects += several.get(key, [first])
    return [use for use in storage_use(suspects) if use.wasted], total


def paths_on(checkpoint: Checkpoint, storages: Iterable[Storage]) -> tuple[KeyPath, ...]:
    """Return the key paths of the tensors that have bytes in one of these storages, in file order, each once.

    Of a tensor in several pieces (``chunks``) one piece is enough.
    """
    wanted = {storage.key for storage in storages}
    views = [each for each in pieces(checkpoint.tensors) if each.storage is not None and each.storage.key in wanted]
    return tuple(dict.fromkeys([each.path for each in views]))


def pieces(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the same as ``leaves``, and the pieces of tensors that were saved in several, in the same order."""
    for tensor in tensors:
        yield from leaves((tensor,))
        for _, chunk in tensor.chunks:
            yield replace(chunk, path=tensor.path)


@cached_by_identity
def _by_storage(tensors: Iterable[Tensor]) -> tuple[dict[str, Tensor], dict[str, list[Tensor]]]:
    """Return the first tensor on each storage (by key), and all of them where there are several: seldom."""
    firsts: dict[str, Tensor] = {}
    several: dict[str, list[Tensor]] = {}
    for tensor in leaves(tensors):
        if tensor.storage is not None:
            key = tensor.storage.key
            first = firsts.setdefault(key, tensor)
            if first is not tensor:
                several.setdefault(key, [first]).append(tensor)
    return firsts, several


def _overlapping(tensors: list[Tensor]) -> list[list[Tensor]]:
    """Return runs of tensors whose spans meet; tensors without elements share nothing."""
    spans = sorted([(*byte_span(tensor), index) for index, tensor in enumerate(tensors) if tensor.numel])
    runs: list[list[int]] = []
    reach = -1
    for start, stop, index in spans:
        if start < reach:
            runs[-1].append(index)
        else:
            runs.append([index])
        reach = max(reach, stop)
    return [[tensors[index] for index in sorted(run)] for run in runs if len(run) > 1]


def _same_view(tensors: list[Tensor]) -> bool:
    return len({each.view_id for each in tensors}) == 1


def _united(spans: list[tuple[int, int]]) -> int:
    """Return the length of the union of these ranges."""
    total = reach = 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, reach))
        reach = max(reach, stop)
    return total


_PROBE = 4096  # bytes at the beginning, in the middle and at the end that are looked at first
_CHUNK = 4 << 20


def is_readable(tensor: Tensor) -> bool:
    """Return whether its elements are in the file in C order, one after another."""
    if tensor.storage is None or tensor.parts or tensor.layout != "strided" or not is_contiguous(tensor):
        return False
    extent = tensor.storage.extent
    if extent is None or tensor.storage.compressed or not tensor.numel:
        return False
    return _span(tensor)[1] <= extent.length


def probe(source: Source, tensor: Tensor) -> bytes:
    """Return a few bytes of the tensor: where they differ from those of another, so do the tensors."""
    start, stop = _span(tensor)
    size = stop - start
    if size <= 3 * _PROBE:
        return read(source, tensor, 0, size)
    width = max(1, tensor.dtype.bits // 8)
    middle = size // 2 // width * width
    return b"".join([read(source, tensor, at, _PROBE) for at in (0, middle, size - _PROBE)])


def is_telling(marked: bytes, tensor: Tensor) -> bool:
    """Return whether the numbers in a probe are not all the same, as in tensors that were only initialised."""
    width = max(1, tensor.dtype.bits // 8)
    return marked[width:] != marked[:-width]


def same(
    one: Tensor,
    other: Tensor,
    source: Source,
    base: Source | None = None,
    work: Work | None = None,
) -> bool:
    """Return whether two tensors that can be read have the same bytes; of those that differ little is read.

    ``base`` are the bytes of the other one, where it is in another checkpoint. ``work`` counts those of one of them.
    """
    base, work = source if base is None else base, work or Work()
    if one.nbytes != other.nbytes or probe(source, one) != probe(base, other):
        return False
    for mine, its in zip(chunks(source, one), chunks(base, other), strict=True):
        if mine != its:
            return False
        work.advance(len(mine))
    return True


def compared(
    one: Tensor,
    other: Tensor,
    source: Source,
    base: Source | None = None,
    work: Work | None = None,
) -> bool | None:
    """Return ``same`` of any two tensors, or None where the elements of one cannot be read straight from the file."""
    return same(one, other, source, base, work) if is_readable(one) and is_readable(other) else None


def digest(source: Source, tensor: Tensor) -> bytes:
    """Return what only the same bytes give."""
    from hashlib import sha256

    found = sha256()
    for chunk in chunks(source, tensor):
        found.update(chunk)
    return found.digest()


def chunks(source: Source, tensor: Tensor) -> Iterator[bytes]:
    """Yield the bytes of the tensor, some at a time. Raises TruncatedError when the file shrinks meanwhile."""
    start, stop = _span(tensor)
    for at in range(0, stop - start, _CHUNK):
        yield read(source, tensor, at, min(_CHUNK, stop - start - at))


def read(source: Source, tensor: Tensor, at: int, length: int) -> bytes:
    """Return ``length`` bytes of the tensor from its byte ``at`` on."""
    assert tensor.storage is not None
    extent = tensor.storage.extent
    assert extent is not None
    return source.part(extent.file).read(extent.offset + _span(tensor)[0] + at, length)


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return the first byte of its storage, and one past the last."""
    start = tensor.offset * tensor.dtype.bits // 8
    return start, start + (tensor.numel * tensor.dtype.bits + 7) // 8
