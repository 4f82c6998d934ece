"""Says what a graft wants, the same contents with the bytes of another copy in some storages, and verifies that."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Source, Storage, Tensor
from ckptdoctor.checkpoint.progress import current
from ckptdoctor.edits.applied.wanted import Stored, Wanted, kept
from ckptdoctor.examine.flipped_bits import FlippedBit
from ckptdoctor.examine.integrity import examine_integrity
from ckptdoctor.grafting.storages import Patch
from ckptdoctor.noun import noun, replace
from ckptdoctor.prove.output import require_bytes
from ckptdoctor.prove.same_contents import read_back, require_right, require_same
from ckptdoctor.values.damage import Damage
from ckptdoctor.values.diff_bytes import same_bytes
from ckptdoctor.writing import Copy, Literal, Recipe, Segment
from ckptdoctor.writing.checksums import Bytes


@noun
class Healed:
    """A storage with its new bytes. ``crc32`` is their checksum, None where the container has none of it.

    ``fits``: it is the checksum that the file states, or the bytes are the ones that are there (and the checksum was
    damaged); both mean that they are what was saved. ``denied``: the file states another one of damaged bytes.
    ``flipped`` is the bit that is flipped back, where that is all.
    """

    storage: Storage
    patches: tuple[Patch, ...]
    crc32: int | None
    fits: bool
    denied: bool
    flipped: FlippedBit | None = None

    @property
    def nbytes(self) -> int:
        """How many bytes are not those of the damaged file."""
        return sum(patch.nbytes for patch in self.patches)


def heal(source: Source, storage: Storage, patches: Sequence[Patch], damage: Damage | None) -> Healed:
    """Return what the storage becomes. Reads all of its bytes where it has a checksum."""
    stated = storage.crc32
    if stated is None:
        return Healed(storage, tuple(patches), None, False, False)
    with Bytes() as files:
        crc = files.checksum(list(_whole(source, storage, patches)))
    fits = crc == stated or (damage is not None and crc == damage.computed)
    return Healed(storage, tuple(patches), crc, fits, damage is not None and not fits)


def flip_back(flipped: FlippedBit) -> Healed:
    """Return what a storage becomes when the bit that explains its checksum is flipped back."""
    storage = flipped.storage
    assert storage.extent is not None
    patch = Patch(flipped.offset - storage.extent.offset, (Literal(bytes([flipped.byte])),))
    return Healed(storage, (patch,), storage.crc32, True, False, flipped)


def grafted(checkpoint: Checkpoint, source: Source, healed: Iterable[Healed]) -> Wanted:
    """Return the same contents with other bytes in storages.

    Every other storage in the file keeps its bytes.
    """
    stored = kept(checkpoint)
    for each in healed:
        data = tuple(_whole(source, each.storage, each.patches))
        stored[each.storage.key] = Stored(each.storage.nbytes, data, each.crc32)
    return Wanted(checkpoint, checkpoint, stored=stored)


def _whole(source: Source, storage: Storage, patches: Iterable[Patch]) -> Iterator[Segment]:
    """Yield all of a storage after the patches."""
    assert storage.extent is not None
    first, at = storage.extent.offset, 0
    for patch in patches:
        if patch.start > at:
            yield Copy(first + at, patch.start - at, source.file)
        yield from patch.data
        at = patch.start + patch.nbytes
    if at < storage.nbytes:
        yield Copy(first + at, storage.nbytes - at, source.file)


# ---- holds what a graft came to against both files before it gets its name


Opened = tuple[Checkpoint, Source]
Pairs = Sequence[tuple[Tensor, Tensor]]


def verifying(
    wanted: Wanted, recipe: Recipe, its: Opened | None, healed: Container[str], donors: Pairs
) -> Callable[[str], None]:
    """Return what raises WriteError where the output at a path is not what was meant.

    ``healed`` are the keys of the storages that have other bytes, and ``donors`` the tensors that were grafted, each
    with what stands for it; ``its`` is None where there is no other copy.
    """

    def verify(path: str) -> None:
        with read_back(), formats.opened(path) as (opened, container):
            written = formats.read(opened, container)
            require_same(wanted.contents, written)
            require_bytes(written, wanted, recipe)
            require_right(_wrong((written, opened), wanted.contents, its, healed, donors))

    return verify


def _wrong(
    written: Opened, original: Checkpoint, its: Opened | None, healed: Container[str], donors: Pairs
) -> str | None:
    """Return what of the output is not what it should be, although every byte is from where it must be."""
    if {note.kind for note in written[0].notes} - {note.kind for note in original.notes}:
        return "it has a note that the original does not have"
    storages = tuple([storage for storage in written[0].storages if storage.key in healed])
    if any(
        each.computed is not None
        for each in examine_integrity(replace(written[0], storages=storages), written[1]).damage
    ):
        return "a checksum does not match"
    if its is None:
        return None
    tensors = {tensor.path: tensor for tensor in written[0].tensors}
    same = same_bytes([(tensors[one.path], other) for one, other in donors], written, its, current())
    return None if all(each is not False for each in same) else "a tensor is not that of the other copy"
