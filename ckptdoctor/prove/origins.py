"""Proves where the bytes of every storage of a repaired copy come from: the original, or what edits made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ckptdoctor.checkpoint import Checkpoint, Storage
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.edits.elements import is_computed
from ckptdoctor.errors import WriteError
from ckptdoctor.findings import Proof
from ckptdoctor.prove.output import require_bytes
from ckptdoctor.prove.same_contents import storage_pairs
from ckptdoctor.writing import CopiedRanges, Copy, Recipe


def trace(wanted: Wanted, written: Checkpoint, recipe: Recipe) -> Proof:
    """Follow every storage of ``written`` back to the original, from which ``recipe`` copies.

    The copied ranges themselves have been compared byte for byte when they were written. Storages that no tensor views
    and that got another key are counted, but not as proven. Raises WriteError, with the tensor, when the bytes of its
    storage come from anywhere else than they must.
    """
    require_bytes(written, wanted, recipe)
    pairs, copied = storage_pairs(wanted.contents, written), CopiedRanges(recipe)
    by_place = {each.extent.offset: each for each in wanted.original.storages if each.extent is not None}
    keys: list[str] = []
    for storage in written.storages:
        extent = storage.extent
        if storage.key in pairs or extent is None or not extent.length:
            keys.append(pairs.get(storage.key, storage.key))
            continue
        source = copied.source(extent.offset)
        old = by_place.get(source) if source is not None else None
        if source is None or old is None or old.extent is None:
            keys.append(storage.key)
            continue
        if extent.length != old.extent.length or not copied.copied_from(extent.offset, Copy(source, extent.length)):
            raise WriteError(
                f"Storage {storage.key} of the output is not storage {old.key} of the original; it was thrown away."
            )
        keys += [old.key] if old.key == storage.key else []
    return _counted(keys, len(written.storages), wanted)


def counted(wanted: Wanted) -> Proof:
    """The same count where the contents go into another container, which is proven tensor by tensor."""
    return _counted([each.key for each in wanted.contents.storages], len(wanted.contents.storages), wanted)


def _counted(keys: Iterable[str], storages: int, wanted: Wanted) -> Proof:
    originals = {each.key: each for each in wanted.original.storages}
    kinds = Counter([_kind(key, originals.get(key), wanted) for key in keys])
    return Proof(
        storages=storages,
        identical=kinds["identical"],
        shrunk=kinds["shrunk"],
        remade=kinds["remade"],
        inflated=kinds["inflated"],
        computed=kinds["computed"],
    )


def _kind(key: str, old: Storage | None, wanted: Wanted) -> str:
    """What of the original's a storage of the contents is; "" where that is not known."""
    if old is None:
        holds = wanted.remade.get(key)
        return "" if holds is None else "computed" if is_computed(holds) else "remade"
    if old.compressed:
        return "inflated"
    if old.extent is None:
        return ""
    whole = ((0, old.extent.length),)
    return "identical" if wanted.pieces.get(key, whole) == whole else "shrunk"
