"""Says what a graft wants: the same contents, with the bytes of another copy in some storages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Source, Storage
from ckptdoctor.edits.applied.wanted import Stored, Wanted, kept
from ckptdoctor.facts.integrity import Damage
from ckptdoctor.grafting.storages import Patch
from ckptdoctor.noun import noun
from ckptdoctor.writing import Copy, Segment
from ckptdoctor.writing.checksums import Bytes


@noun
class Healed:
    """A storage with its new bytes. ``crc32`` is their checksum, None where the container has none of it.

    ``fits``: it is the checksum that the file states, or the bytes are the ones that are there (and the checksum was
    damaged); both mean that they are what was saved. ``denied``: the file states another one of damaged bytes.
    """

    storage: Storage
    patches: tuple[Patch, ...]
    crc32: int | None
    fits: bool
    denied: bool


def heal(source: Source, storage: Storage, patches: Sequence[Patch], damage: Damage | None) -> Healed:
    """What the storage becomes. Reads all of its bytes where it has a checksum."""
    stated = storage.crc32
    if stated is None:
        return Healed(storage, tuple(patches), None, False, False)
    with Bytes() as files:
        crc = files.checksum(list(_whole(source, storage, patches)))
    fits = crc == stated or (damage is not None and crc == damage.computed)
    return Healed(storage, tuple(patches), crc, fits, damage is not None and not fits)


def grafted(checkpoint: Checkpoint, source: Source, healed: Iterable[Healed]) -> Wanted:
    """The same contents with other bytes in storages; every other storage that lies in the file holds what it has."""
    stored = kept(checkpoint)
    for each in healed:
        data = tuple(_whole(source, each.storage, each.patches))
        stored[each.storage.key] = Stored(each.storage.nbytes, data, each.crc32)
    return Wanted(checkpoint, checkpoint, stored=stored)


def _whole(source: Source, storage: Storage, patches: Iterable[Patch]) -> Iterator[Segment]:
    """All of a storage after the patches."""
    assert storage.extent is not None
    first, at = storage.extent.offset, 0
    for patch in patches:
        if patch.start > at:
            yield Copy(first + at, patch.start - at, source.file)
        yield from patch.data
        at = patch.start + patch.nbytes
    if at < storage.nbytes:
        yield Copy(first + at, storage.nbytes - at, source.file)
