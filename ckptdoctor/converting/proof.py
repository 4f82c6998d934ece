"""Proves a conversion: reopens what was written, and follows the bytes of every tensor back to where they came from.

Copied ranges have been compared byte for byte when they were written, so that it is enough to know that they are the
right ones; everything else is compared here, by other code than made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from zlib import crc32

from ckptdoctor.checkpoint import Extent, FileSource, Storage, Tensor, progress
from ckptdoctor.edits.elements import Elements
from ckptdoctor.errors import DamagedError, WriteError
from ckptdoctor.formats.compose.checksums import Bytes, Data, batches
from ckptdoctor.formats.compose.reading import Place, inflated
from ckptdoctor.formats.compose.strided import elements, segments, turn_of
from ckptdoctor.noun import noun
from ckptdoctor.prove.elements import require_elements
from ckptdoctor.writing import CopiedRanges, Copy, Generated, Literal, Segment

_WORKERS = 2
_EVERY = 0.1  # seconds


@noun
class Direct:
    """Elements that are views of files, and where the storages lie that they name."""

    elements: Elements
    places: Mapping[str, Extent]


@noun
class CopyTally:
    """The number of tensors that are ranges of the sources, and of those with the same elements in another layout."""

    identical: int = 0
    remade: int = 0

    def __add__(self, other: CopyTally) -> CopyTally:
        return CopyTally(self.identical + other.identical, self.remade + other.remade)


def require_bytes(tensor: Tensor, swapped: bool, place: Extent | None, copied: CopiedRanges) -> CopyTally:
    """Raises WriteError unless the bytes at ``place`` of the output are the elements of ``tensor`` in C order."""
    wanted = segments(tensor, swapped)
    if sum(each.length for each in wanted) != (0 if place is None else place.length):
        raise _wrong(tensor.key)
    found = as_they_lie(tensor, swapped) if any(isinstance(each, Generated) for each in wanted) else None
    made = require_stored(wanted, found, place, copied, tensor.key)
    return CopyTally(remade=1) if made else CopyTally(identical=1)


def as_they_lie(tensor: Tensor, swapped: bool) -> Direct | None:
    """The elements as views of files; None where they are packed or turned there."""
    found, places = elements(tensor)
    direct = {name: each.storage.extent for name, each in places.items() if _direct(each, swapped)}
    extents = {name: extent for name, extent in direct.items() if extent is not None}
    return Direct(found, extents) if len(extents) == len(places) else None


def require_stored(
    wanted: Sequence[Segment], found: Direct | None, place: Extent | None, copied: CopiedRanges, name: str = ""
) -> bool:
    """Raises WriteError unless the bytes at ``place`` are these; whether some of them are made, and not copied.

    What was made is held against ``found``, and made again where there is no such thing.
    """
    if sum(each.length for each in wanted) != (0 if place is None else place.length):
        raise _wrong(name)
    at = place.offset if place is not None else 0
    for each in wanted:
        if place is not None:
            _require(each, found, Extent(place.file, at, each.length), copied, name)
        at += each.length
    return any(isinstance(each, Generated) for each in wanted)


def _require(wanted: Segment, found: Direct | None, place: Extent, copied: CopiedRanges, name: str) -> None:
    if isinstance(wanted, Copy):
        if not copied.copied_from(place.offset, wanted):
            raise _wrong(name)
        progress.advance(wanted.length)
    elif isinstance(wanted, Generated) and found is not None:
        require_elements(found.elements, found.places, place)
    else:
        at = place.offset
        for chunk in (wanted.data,) if isinstance(wanted, Literal) else wanted.chunks():
            if _read(place.file, at, len(chunk)) != chunk:
                raise _wrong(name)
            at += len(chunk)
            progress.advance(len(chunk))


def _direct(place: Place, swapped: bool) -> bool:
    """Whether the elements lie in a file as they are."""
    turned = swapped and turn_of(place.storage) > 1
    return place.storage.extent is not None and not place.storage.compressed and not turned


def _wrong(name: str) -> WriteError:
    return WriteError(f"The values of {name or 'a storage'} are others in the output; it was thrown away.")


def _read(path: str, offset: int, length: int) -> bytes:
    with FileSource(path) as source:
        return source.read(offset, length)


def same_values(one: Tensor, other: Tensor, swapped: bool) -> bool:
    """Whether two tensors have the same dtype, shape and bytes."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    with Bytes() as files:
        mine = (chunk for chunk in files.of(segments(one, swapped)) if chunk)
        its = (chunk for chunk in files.of(segments(other, swapped)) if chunk)
        left, right = next(mine, b""), next(its, b"")
        while left and right:
            size = min(len(left), len(right))
            if left[:size] != right[:size]:
                return False
            progress.advance(size)
            left, right = left[size:] or next(mine, b""), right[size:] or next(its, b"")
        return not left and not right


class Checksums:
    """Holds storages against the checksums that their container has, in threads of their own, while others write."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        storages: dict[Extent, Storage] = {}
        for tensor in tensors:
            for each in (tensor, *[chunk for _, chunk in tensor.chunks]):
                storage = each.storage
                if storage is not None and storage.extent is not None and storage.crc32 is not None:
                    storages.setdefault(storage.extent, storage)
        self._stopped = False
        self._done = 0
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="ckptdoctor-checksums")
        self._storages = {(Copy(each.offset, each.length, each.file),): storage for each, storage in storages.items()}
        self._found = [self._pool.submit(self._unlike, group) for group in batches(list(self._storages))]

    def require(self) -> None:
        """Raises DamagedError for the first storage that does not match."""
        total = sum([each.length for (each,) in self._storages])
        with progress.phase("checksums", total) as reading:
            for future in self._found:
                while not wait([future], _EVERY).done:
                    reading.reach(self._done)
        for future in self._found:
            broken = future.result()
            if broken is not None and broken.extent is not None:
                raise DamagedError(
                    f"The values of storage {broken.key} of {broken.extent.file} do not match their checksum, which "
                    "the output could not tell any more; ckptdoctor salvage saves what is whole."
                )

    def close(self) -> None:
        """Stop, whatever is left to do."""
        self._stopped = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _unlike(self, group: Sequence[Data]) -> Storage | None:
        """The first storage of the group with another checksum."""
        with Bytes() as files:
            for data in group:
                storage = self._storages[data]  # type: ignore[index]  # a tuple of one range
                crc = 0
                for chunk in inflated(storage) if storage.compressed else files.of(data):
                    if self._stopped:
                        return None
                    crc = crc32(chunk, crc)
                    self._done += len(chunk)  # by two threads: where one is overlooked, the line is a little behind
                if crc != storage.crc32:
                    return storage
        return None
