"""Makes the new bytes of storages: the elements of the other copy's tensors, in the order of the damaged file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from ckptdoctor.checkpoint import KeyPath, Storage, Tensor, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import byte_span, is_contiguous
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.fresh.reading import of_storage
from ckptdoctor.formats.fresh.strided import length, refusal, segments
from ckptdoctor.noun import field, noun, replace
from ckptdoctor.wording import plural
from ckptdoctor.writing import Copy, Generated, Segment
from ckptdoctor.writing.checksums import Bytes

_RAW = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}  # what quantized dtypes are stored as
_PLAIN = (None, "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")  # classes that are only their values


@noun
class View:
    """What a tensor, or a part of one, shows of a storage; ``donor`` is the same of the other copy."""

    path: KeyPath
    mine: Tensor
    donor: Tensor | None

    @property
    def start(self) -> int:
        """The first byte in the storage."""
        return self.mine.offset * self.mine.dtype.bits // 8


@noun
class Patch:
    """New bytes of a storage from ``start`` on."""

    start: int
    data: tuple[Segment, ...]

    @property
    def nbytes(self) -> int:
        """How many."""
        return sum(each.length for each in self.data)


@noun(frozen=False)
class Views:
    """Everything that is shown of the storages of the damaged file. ``swapped``: which of both are big-endian."""

    swapped: tuple[bool, bool]
    on: dict[str, list[View]] = field(default_factory=dict)

    def add(self, tensor: Tensor, donor: Tensor | None) -> None:
        """Take in a tensor with its counterpart."""
        mine = list(_leaves(tensor))
        its = list(_leaves(donor)) if donor is not None and unlike(tensor, donor) is None else [None] * len(mine)
        for one, other in zip(mine, its, strict=True):
            if one.storage is not None:
                self.on.setdefault(one.storage.key, []).append(View(tensor.path, one, other))

    def whole(self, storage: Storage) -> list[Patch]:
        """Return new bytes for all of a storage. Raises RefusedError where some of them cannot be known."""
        views = self.on[storage.key]
        lacking = next((view.path for view in views if view.donor is None), None)
        if lacking is not None:
            raise RefusedError(f"{show_path(lacking)} is in the same storage, and the other copy does not have it")
        donor = _same_layout(storage, views)
        if donor is not None and self.swapped[0] == self.swapped[1]:
            return [Patch(0, _all_of(donor))]
        patches = self._made(views)
        at = 0
        for patch in patches:
            if patch.start != at:
                raise RefusedError(
                    f"{abs(patch.start - at):,} bytes of its storage "
                    f"{'belong to no tensor' if patch.start > at else 'belong to several tensors'}, and the "
                    "other copy does not have them in the same place"
                )
            at += patch.nbytes
        if at != storage.nbytes:
            raise RefusedError(
                f"{plural(storage.nbytes - at, 'byte')} of its storage in no tensor: the other copy does not have them"
            )
        return patches

    def some(self, storage: Storage, paths: Iterable[KeyPath]) -> list[Patch]:
        """Return what some tensors show of a sound storage.

        Raises RefusedError where others show part of it as well.
        """
        wanted = set(paths)
        places = {view.mine.view_id for view in self.on[storage.key] if view.path in wanted}
        patches = self._made([view for view in self.on[storage.key] if view.mine.view_id in places])
        starts = [patch.start for patch in patches]
        ends = [patch.start + patch.nbytes for patch in patches]
        for view in self.on[storage.key]:
            first, last = byte_span(view.mine)
            before = bisect_left(starts, last) - 1  # the last one that begins in front of the view's end
            if view.mine.view_id not in places and view.mine.numel and before >= 0 and ends[before] > first:
                raise RefusedError(f"{show_path(view.path)} shares some of its bytes: name both with --key")
        if any(end > start for end, start in zip(ends, starts[1:], strict=False)):
            raise RefusedError("it shares some of its bytes with another one that was named")
        return patches

    def _made(self, views: Sequence[View]) -> list[Patch]:
        """Return the elements of the donors of these views, in their order in the storage."""
        groups: dict[object, list[View]] = {}
        for view in views:
            if view.mine.numel:
                groups.setdefault(view.mine.view_id, []).append(view)
        patches = []
        for group in groups.values():
            made = [Patch(group[0].start, self._elements(group[0].mine, each)) for each in _distinct(group)]
            if any(not _same(made[0], other) for other in made[1:]):
                names = " and ".join(show_path(each.path) for each in group[:2])
                raise RefusedError(f"{names} are one tensor here, but two with different values in the other copy")
            patches += made[:1]
        return sorted(patches, key=lambda patch: patch.start)

    def _elements(self, mine: Tensor, donor: Tensor | None) -> tuple[Segment, ...]:
        if donor is None:
            raise RefusedError("the other copy does not have it")
        why = refusal(donor)
        if why is not None:
            raise RefusedError(f"in the other copy it {why}")
        if not is_contiguous(mine):
            order = sorted(range(len(mine.shape)), key=lambda dim: -mine.stride[dim])
            if not is_contiguous(_permuted(mine, order)) or donor.chunks:
                raise RefusedError("its elements are not contiguous in the damaged file")
            donor = _permuted(donor, order)
        found = segments(donor, self.swapped[0] != self.swapped[1])
        if sum(each.length for each in found) != length(mine):
            raise RefusedError("the other copy has a different number of bytes for it")
        return found


def unlike(mine: Tensor, donor: Tensor) -> str | None:
    """Return why one tensor cannot stand for the other, or None where it can."""
    if (mine.dtype.name, mine.shape) != (donor.dtype.name, donor.shape):
        return f"it is {donor.dtype.name} {list(donor.shape)} there, and {mine.dtype.name} {list(mine.shape)} here"
    kinds = [(each.layout, None if each.subclass in _PLAIN else each.subclass) for each in (mine, donor)]
    if kinds[0] != kinds[1]:
        return f"it is {kinds[1][1] or kinds[1][0]} there, and {kinds[0][1] or kinds[0][0]} here"
    if mine.details != donor.details:
        return "its scale, or another of its numbers, is different there"
    if mine.storage is None and not mine.parts:
        return "its values are in the pickle, not in separate bytes"
    one, other = list(_leaves(mine)), list(_leaves(donor))
    if [(each.dtype.name, each.shape) for each in one] != [(each.dtype.name, each.shape) for each in other]:
        return "it consists of other parts there"
    return None


def _leaves(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the plain tensors with bytes of their own that one is made of."""
    if tensor.chunks:
        yield tensor
        return
    if tensor.storage is not None or (tensor.values is not None and not tensor.parts):
        dtype = BY_NAME[_RAW[tensor.dtype.name]] if tensor.dtype.name in _RAW else tensor.dtype
        bare = tensor.subclass in _PLAIN and tensor.layout == "strided"
        yield replace(tensor, dtype=dtype, parts=(), details=(), subclass=None) if bare else replace(tensor, parts=())
    for part in tensor.parts:
        yield from _leaves(part)


def _permuted(tensor: Tensor, order: Sequence[int]) -> Tensor:
    shape, stride = tensor.shape, tensor.stride
    return replace(tensor, shape=tuple([shape[dim] for dim in order]), stride=tuple([stride[dim] for dim in order]))


def _same_layout(storage: Storage, views: Sequence[View]) -> Storage | None:
    """Return the storage of the other copy that these views show in the very same way, or None where there is none."""
    found: Storage | None = None
    for view in views:
        donor = view.donor
        if donor is None or donor.storage is None or donor.chunks:
            return None
        if found is not None and found.key != donor.storage.key:
            return None
        found = donor.storage
        if (donor.offset, donor.stride) != (view.mine.offset, view.mine.stride):
            return None
    if found is None or found.nbytes != storage.nbytes or found.extent is None:
        return None
    return found if found.compressed or found.extent.length == found.nbytes else None


def _all_of(storage: Storage) -> tuple[Segment, ...]:
    assert storage.extent is not None
    if storage.compressed:
        return (Generated(storage.nbytes, of_storage(storage, 0, storage.nbytes)),)
    return (Copy(storage.extent.offset, storage.nbytes, storage.extent.file),) if storage.nbytes else ()


def _distinct(group: Sequence[View]) -> list[Tensor | None]:
    """Return the donors of tensors that are one here, those that are one there as well once.

    What it lacks does not count.
    """
    found: dict[object, Tensor] = {}
    for view in group:
        donor = view.donor
        if donor is not None:
            where = donor.storage.extent if donor.storage is not None else id(donor)
            found.setdefault((where, donor.offset, donor.shape, donor.stride), donor)
    return list(found.values()) or [None]


def _same(one: Patch, other: Patch) -> bool:
    """Return whether both are the same bytes. Two checksums of different kinds would be needed to be fooled."""
    from hashlib import blake2b

    digests = []
    with Bytes() as files:
        for patch in (one, other):
            made = blake2b(digest_size=16)
            for chunk in files.of(patch.data):
                made.update(chunk)
            digests.append(made.digest())
    return digests[0] == digests[1]
