"""Proves where the bytes of every storage of an output came from, out of the ranges that it was copied from."""

from __future__ import annotations

from collections.abc import Mapping

from ckptdoctor.checkpoint import Checkpoint, Extent, Storage, progress
from ckptdoctor.edits.applied.compacting import Piece
from ckptdoctor.edits.elements import Elements, is_computed, views
from ckptdoctor.errors import WriteError
from ckptdoctor.findings import Proof
from ckptdoctor.prove.elements import require_elements
from ckptdoctor.prove.same_contents import storage_pairs
from ckptdoctor.writing import CopiedRanges, Copy, Recipe


def trace(
    original: Checkpoint,
    wanted: Checkpoint,
    written: Checkpoint,
    recipe: Recipe,
    pieces: Mapping[str, tuple[Piece, ...]],
    remade: Mapping[str, Elements],
) -> Proof:
    """Follow every storage of ``written`` back to the original.

    ``recipe`` says from where it was copied, ``pieces`` to which byte ranges of the original a storage (by key)
    shrinks, and ``remade`` what new storages (by key in ``wanted``) hold.

    The copied ranges themselves have been compared byte for byte when they were written. Storages that no tensor views
    and that got another key are counted, but not as proven. Raises WriteError, with the storage, when its bytes come
    from anywhere else than they must.
    """
    copied = CopiedRanges(recipe)
    originals = {storage.key: storage for storage in original.storages}
    by_place = {each.extent.offset: each for each in original.storages if each.extent is not None}
    pairs = storage_pairs(wanted, written)
    counts = dict.fromkeys(("identical", "shrunk", "remade", "inflated", "computed"), 0)
    for storage in written.storages:
        if storage.key not in pairs and storage.extent is not None and storage.extent.length:
            source = copied.source(storage.extent.offset)
            there = by_place.get(source) if source is not None else None
            if there is not None and there.extent is not None:
                _require(copied, storage, there, ((0, there.extent.length),))
                counts["identical"] += there.key == storage.key
                continue
        key = pairs.get(storage.key, storage.key)
        old = originals.get(key)
        if old is not None and old.compressed:
            counts["inflated"] += 1
        elif old is None:
            made = remade.get(key)
            kind = "computed" if made is not None and is_computed(made) else "remade"
            counts[kind] += _is_remade(made, originals, storage)
        elif storage.extent is not None and old.extent is not None:
            kept = pieces.get(key, ((0, old.extent.length),))
            _require(copied, storage, old, kept)
            progress.advance(storage.extent.length)
            counts["identical" if kept == ((0, old.extent.length),) else "shrunk"] += 1
    return Proof(
        storages=len(written.storages),
        identical=counts["identical"],
        shrunk=counts["shrunk"],
        remade=counts["remade"],
        inflated=counts["inflated"],
        computed=counts["computed"],
    )


def _require(copied: CopiedRanges, storage: Storage, old: Storage, pieces: tuple[Piece, ...]) -> None:
    assert storage.extent is not None
    assert old.extent is not None
    at = storage.extent.offset
    if storage.extent.length != sum(length for _, length in pieces):
        raise WriteError(f"Storage {storage.key} of the output has a wrong length; it was thrown away.")
    for start, length in pieces:
        if not copied.copied_from(at, Copy(old.extent.offset + start, length)):
            raise WriteError(
                f"Storage {storage.key} of the output is not storage {old.key} of the original; it was thrown away."
            )
        at += length


def _is_remade(elements: Elements | None, originals: dict[str, Storage], storage: Storage) -> bool:
    """Whether a storage made anew holds exactly the elements that it was made of. False: that is not known."""
    if elements is None or storage.extent is None:
        return False
    places: dict[str, Extent] = {}
    for view in views(elements):
        extent = originals[view.source].extent if view.held is None else None
        if extent is not None:
            places[view.source] = extent
        elif view.held is None:
            return False
    require_elements(elements, places, storage.extent)
    return True
