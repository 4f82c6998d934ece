"""Saves what is whole of a broken checkpoint: every tensor whose bytes are all there, with the tree around them.

Nothing is guessed or filled in. A tensor is recovered where all bytes of its storage are in the file and match the
checksum, if there is one, and what a seal has of them; without a checksum, runs of zeros that interrupted downloads
leave make it doubtful, and doubtful is lost. What is lost goes from the dicts that held it, so that ``load_state_dict``
names it as missing; in lists, whose places mean something, None stands for it. An optimizer's state of one parameter
stays whole or goes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ckptdoctor import formats
from ckptdoctor.account.account import require_accounted
from ckptdoctor.checkpoint import (
    Checkpoint,
    Extent,
    KeyPath,
    Mapping,
    Note,
    NoteKind,
    Role,
    Source,
    Storage,
    Tensor,
    at,
    progress,
    show_path,
)
from ckptdoctor.edits import Drop, Edit, Replace, Safety, Truncate
from ckptdoctor.edits.applied.wanted import Stored, wanted_of
from ckptdoctor.edits.fix import Step
from ckptdoctor.edits.grafts import HealedTensor
from ckptdoctor.errors import RefusedError
from ckptdoctor.examine.flipped_bits import FlippedBit, explained
from ckptdoctor.examine.integrity import examine_integrity
from ckptdoctor.facts.reader_notes import require_own_values
from ckptdoctor.findings import LostTensor, SalvageReport
from ckptdoctor.formats.suffixes import require_own_format
from ckptdoctor.noun import noun, replace
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.sealing.manifest import Region
from ckptdoctor.sealing.verify import Span, compared_with_seal
from ckptdoctor.values.damage import Integrity
from ckptdoctor.writing import Copy, Literal
from ckptdoctor.writing.recipe import with_bytes

if TYPE_CHECKING:
    from ckptdoctor.repair.plan import Plan

_LEAST_ZEROS = 64 << 10  # fewer are what many tensors end with
_CHUNK = 1 << 20


@noun
class Salvage:
    """What will be written, and what is said of it."""

    plan: Plan
    report: SalvageReport


def beside(path: str) -> str:
    """Return the name of what is saved where none is given."""
    stem, own = os.path.splitext(path)
    return f"{stem}.salvaged{own}"


def plan_salvage(path: str, output: str, *, force: bool = False) -> Salvage:
    """Return what is whole and what is not. Reads every byte once, and writes nothing; raises as ``salvage`` does."""
    with formats.opened(path, here=True) as (source, container):
        original = formats.salvage(source, container)
        require_own_format("salvage", path, output, original.format)
        require_own_values(original)
        state = _State(original, source)
        lost = [tensor for tensor in original.tensors if state.share(tensor) < 1]
        if original.tensors and len(lost) == len(original.tensors):
            none = "its only tensor is not" if len(lost) == 1 else f"none of its {len(lost):,} tensors is"
            raise RefusedError(f"{path}: {none} intact, so there is nothing to recover.")
        edits = (*_without(original, lost), *_cut(original, state))
        wanted = wanted_of(original, edits)
        require_accounted(original, wanted.contents, edits)
        flipped = state.flipped.values()
        recipe = with_bytes(formats.write(wanted, source), {each.offset: each.byte for each in flipped})
        wanted = replace(wanted, stored={each.storage.key: _healed(each) for each in flipped})
    steps = (Step("salvage", "", "leave out lost tensors", Safety.UNSAFE, edits, ()),) if edits else ()
    from ckptdoctor.repair.plan import Plan

    plan = Plan(FixRequest(path, output, force=force), output, wanted, steps, recipe, file=source.file)
    return Salvage(plan, _report(plan, lost, state))


class _State:
    """How much of each storage is there."""

    def __init__(self, checkpoint: Checkpoint, source: Source) -> None:
        with progress.phase("storages", checkpoint.size) as work:
            integrity = examine_integrity(checkpoint, source, work)
        self._damaged = {
            each.storage.key: "has holes of zero bytes" if each.computed is None else "does not match its checksum"
            for each in integrity.damage
        }
        found = explained(integrity.damage, source)
        self.flipped = {each.storage.key: each for each in found if each.certain}
        self._damaged = {key: why for key, why in self._damaged.items() if key not in self.flipped}
        unsure = [each for each in found if not each.certain]
        self._damaged |= {each.storage.key: f"does not match its checksum; {each.doubt}" for each in unsure}
        self._zeros = _zero_tail(source)
        self.bad_seals = integrity.bad_seals
        self._sealed = _Sealed(integrity, source)

    def share(self, tensor: Tensor) -> float:
        """Return the share of its bytes that is there and not known to be wrong: 1 for a tensor that is whole."""
        if self._is_unlike_its_seal(tensor):
            return 0.0
        own = [] if tensor.storage is None else [self._of_storage(tensor.storage)]
        return min([*own, *map(self.share, tensor.parts)], default=1.0)

    def _is_unlike_its_seal(self, tensor: Tensor) -> bool:
        healed = tensor.storage is not None and tensor.storage.key in self.flipped
        return not healed and self._sealed.changed(tensor)

    def _of_storage(self, storage: Storage) -> float:
        extent = storage.extent
        if not storage.nbytes:
            return 1.0
        if extent is None:
            return 0.0
        if storage.compressed:
            return 0.0 if storage.key in self._damaged else 1.0
        there = min(1.0, extent.length / storage.nbytes)
        if storage.crc32 is None and self._zeros is not None and extent.offset + extent.length > self._zeros:
            return min(there, max(0, self._zeros - extent.offset) / storage.nbytes)
        return min(there, 0.0) if storage.key in self._damaged else there

    def damage(self, tensor: Tensor) -> str:
        """Return what is known to be wrong with its bytes, as far as they are there, or "" where nothing is."""
        own = "" if tensor.storage is None else self._damaged.get(tensor.storage.key, "")
        own = own or next(filter(None, map(self.damage, tensor.parts)), "")
        return own or ("is not as it was sealed" if self._is_unlike_its_seal(tensor) else "")

    def verified(self, tensor: Tensor) -> bool:
        """Return whether a checksum vouches for it, its own or that of a seal."""
        if self._sealed.proves(tensor):
            return True
        own = tensor.storage is None or not tensor.storage.nbytes or tensor.storage.crc32 is not None
        return own and all(map(self.verified, tensor.parts))


class _Sealed:
    """What the seal of a file proves of its tensors, where it has one."""

    def __init__(self, integrity: Integrity, source: Source) -> None:
        promise = integrity.promise
        sealed = promise is not None and promise.sealed
        self._all = sealed and promise is not None and integrity.digest == promise.digits
        self._places: dict[str, Region] = {}
        self._changed: frozenset[str] = frozenset()
        self._ranges: tuple[Span, ...] = ()
        found = compared_with_seal(source.path) if sealed and not self._all else None
        if found is None:
            return
        file, verdict = found
        self._changed = frozenset([each.name for each in verdict.changed])
        self._ranges = verdict.ranges
        if not verdict.outside:  # otherwise a tensor of this name need not be the one that was sealed
            self._places = {shown.name: region for region in file.regions for shown in region.tensors}

    def changed(self, tensor: Tensor) -> bool:
        """Return whether bytes of it are not as they were sealed."""
        if show_path(tensor.path) in self._changed:
            return True
        spans = [(each.offset, each.offset + each.length) for each in _extents(tensor)] if self._ranges else []
        return any(first < stop and start < last for start, stop in self._ranges for first, last in spans)

    def proves(self, tensor: Tensor) -> bool:
        """Return whether all of it is as it was sealed."""
        region = self._places.get(show_path(tensor.path))
        if self._all or region is None or self.changed(tensor):
            return self._all
        end = region.offset + region.length
        return all(region.offset <= each.offset and each.offset + each.length <= end for each in _extents(tensor))


def _extents(tensor: Tensor) -> Iterator[Extent]:
    if tensor.storage is not None and tensor.storage.extent is not None:
        yield tensor.storage.extent
    for part in tensor.parts:
        yield from _extents(part)


def _healed(flipped: FlippedBit) -> Stored:
    """Return what a storage holds once the bit is flipped back."""
    extent = flipped.storage.extent
    assert extent is not None
    behind = flipped.offset + 1
    pieces = (
        Copy(extent.offset, flipped.offset - extent.offset),
        Literal(bytes([flipped.byte])),
        Copy(behind, extent.offset + extent.length - behind),
    )
    return Stored(extent.length, tuple([each for each in pieces if each.length]), flipped.storage.crc32)


def _flips(tensor: Tensor, state: _State) -> Iterator[HealedTensor]:
    """Yield what was flipped back in a tensor."""
    flipped = state.flipped.get(tensor.storage.key) if tensor.storage is not None else None
    if flipped is not None:
        yield flipped.in_tensor(tensor.path)
    for part in tensor.parts:
        yield from _flips(part, state)


def _without(checkpoint: Checkpoint, lost: Iterable[Tensor]) -> Iterator[Edit]:
    """Yield the edits that take the lost tensors out."""
    roots = [each.path for each in checkpoint.state_dicts if each.role is Role.OPTIMIZER]
    paths = dict.fromkeys(_goes(checkpoint, tensor.path, roots) for tensor in lost)
    whole = [path for path in paths if not any(path[:size] in paths for size in range(len(path)))]
    drops = []
    for path in whole:
        if isinstance(at(checkpoint.tree, path[:-1]), Mapping):
            drops.append(path)
        else:
            yield Replace(path, None)
    if drops:
        yield Drop(tuple(drops))


def _goes(checkpoint: Checkpoint, path: KeyPath, optimizers: Iterable[KeyPath]) -> KeyPath:
    """Return what must go with the tensor at ``path``: itself, or an optimizer's state for one parameter."""
    for root in optimizers:
        if path[: len(root)] == root and path[len(root) : len(root) + 1] == ("state",) and len(path) > len(root) + 2:
            return path[: len(root) + 2]
    return path


def _cut(checkpoint: Checkpoint, state: _State) -> Iterator[Edit]:
    """Cut off what follows the last tensor of a safetensors file, which safetensors refuses."""
    if checkpoint.format != "safetensors":
        return
    ends = [storage.extent.offset + storage.nbytes for storage in checkpoint.storages if storage.extent is not None]
    if ends and max(ends) < checkpoint.size:
        yield Truncate(max(ends))


def _report(plan: Plan, lost: list[Tensor], state: _State) -> SalvageReport:
    kept = plan.expected.tensors
    there, gone = {tensor.path for tensor in kept}, {tensor.path for tensor in lost}
    useless = [tensor for tensor in plan.original.tensors if tensor.path not in there and tensor.path not in gone]
    return SalvageReport(
        path=plan.request.path,
        output=plan.output,
        format=plan.original.format,
        recovered=len(kept),
        recovered_bytes=sum(tensor.nbytes for tensor in kept),
        verified=sum(map(state.verified, kept)),
        lost=tuple([_lost(each, state) for each in (*lost, *useless)]),
        left_out=tuple([edit.path for edit in plan.edits if isinstance(edit, Replace)]),
        healed=tuple([healed for tensor in kept for healed in _flips(tensor, state)]),
        notes=(*[each.message for each in plan.original.notes if _is_left_out(each)], *state.bad_seals),
    )


def _is_left_out(note: Note) -> bool:
    """Return whether it is about what is in the file, and is not in the copy, other than tensors."""
    older = note.kind is NoteKind.TRUNCATED and note.member is not None
    return older or (note.kind is NoteKind.ZIP_UNUSUAL and note.offset == 0)


def _lost(tensor: Tensor, state: _State) -> LostTensor:
    share = state.share(tensor)
    return LostTensor(tensor.path, tensor.dtype.name, tensor.shape, tensor.nbytes, share, state.damage(tensor))


def _zero_tail(source: Source) -> int | None:
    """Return where the zero bytes begin with which a file ends that was given its full size before its contents.

    None where fewer than 64 KiB at its end are zeros.
    """
    at = source.size
    while at > 0:
        start = max(0, at - _CHUNK)
        left = source.read(start, at - start).rstrip(b"\0")
        at = start + len(left)
        if left:
            break
    return at if source.size - at >= _LEAST_ZEROS else None
