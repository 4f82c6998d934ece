"""How a file is written with some of its storages replaced: new bytes and checksums in their places, nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ckptdoctor.checkpoint import Checkpoint, Source, Storage
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.integrity import Damage
from ckptdoctor.formats.fresh.checksums import Bytes
from ckptdoctor.formats.fresh.composed import Composed, Stored
from ckptdoctor.grafting.storages import Patch
from ckptdoctor.noun import noun
from ckptdoctor.writing import Copy, Literal, Recipe, Segment


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


def composed(checkpoint: Checkpoint, source: Source, healed: Iterable[Healed]) -> Composed:
    """The same contents with other bytes in storages. Raises RefusedError where such bytes belong to two records."""
    made = {each.storage.key: each for each in healed}
    recipe = _recipe(source, made.values())
    return Composed({"": recipe}, recipe, checkpoint, {each.key: each for each in _stored(checkpoint, source, made)})


def _stored(checkpoint: Checkpoint, source: Source, made: Mapping[str, Healed]) -> Iterator[Stored]:
    """What each storage that lies in the file holds: other bytes in places, or what it has."""
    for storage in checkpoint.storages:
        extent = storage.extent
        if extent is None:
            continue
        if storage.key in made:
            data = tuple(_whole(source, storage, made[storage.key].patches))
        else:
            data = (Copy(extent.offset, extent.length),) if extent.length else ()
        yield Stored(storage.key, extent.length, data)


def _recipe(source: Source, healed: Iterable[Healed]) -> Recipe:
    patches: list[tuple[int, tuple[Segment, ...]]] = []
    checksums: dict[str, int] = {}
    for each in healed:
        assert each.storage.extent is not None
        patches += [(each.storage.extent.offset + patch.start, patch.data) for patch in each.patches]
        if each.crc32 is not None and each.crc32 != each.storage.crc32:
            checksums[each.storage.key] = each.crc32
    if checksums:
        from ckptdoctor.formats.torch.zip.checksums import restated

        patches += [(at, (Literal(data),)) for at, data in restated(source, checksums)]
    return Recipe(source.file, tuple(_segments(source, patches)))


def _segments(source: Source, patches: Iterable[tuple[int, tuple[Segment, ...]]]) -> Iterator[Segment]:
    at = 0
    for start, data in sorted(patches, key=lambda patch: patch[0]):
        if start < at:
            raise RefusedError(f"Two records of the file share byte {start:,}, so that neither can be replaced.")
        if start > at:
            yield Copy(at, start - at)
        yield from data
        at = start + sum(each.length for each in data)
    if at < source.size:
        yield Copy(at, source.size - at)


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
