"""Finds tensors that have the very bytes of those of another checkpoint: training has not changed them."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, Source, StateDict, Tensor
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.sharing import is_readable, same
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.noun import noun


@noun
class SameAsBase:
    """The tensors of a state dict by what became of those of the same name, shape and dtype in another checkpoint.

    ``unknown`` are those that the other does not have, or has as something else, or that cannot be compared. A second
    name of a tensor that the other tells once is in none of them.
    """

    comparison: Comparison
    same: tuple[Tensor, ...]
    different: tuple[Tensor, ...]
    unknown: tuple[Tensor, ...]


def same_as_base(comparison: Comparison, source: Source, other: Checkpoint, base: Source, work: Work) -> SameAsBase:
    """Compare the bytes of the tensors; ``work`` says how many of them are done.

    What stored checksums tell apart is not read. ``base`` are the bytes of ``other``, which the reference is. Raises
    TruncatedError when a file shrinks meanwhile, and StoppedError once nobody wants the rest.
    """
    assert comparison.state_dict is not None
    theirs = _tensors(other, comparison)
    found: dict[bool | None, list[Tensor]] = {True: [], False: [], None: []}
    for tensor in comparison.state_dict.tensors:
        name = comparison.final_name(tensor.key)
        if name not in comparison.renamed.twins:
            before = work.done
            found[_compared(source, tensor, base, theirs.get(name), work)].append(tensor)
            work.advance(before + tensor.nbytes - work.done)  # of those that differ not all was read
    return SameAsBase(comparison, tuple(found[True]), tuple(found[False]), tuple(found[None]))


def _tensors(other: Checkpoint, comparison: Comparison) -> dict[str, Tensor]:
    root = comparison.reference.root
    wanted: StateDict | None = next((each for each in other.state_dicts if each.path == root), None)
    return {each.key: each for each in wanted.tensors} if wanted is not None else {}


def _compared(source: Source, tensor: Tensor, base: Source, twin: Tensor | None, work: Work) -> bool | None:
    if twin is None or (twin.shape, twin.dtype.name) != (tensor.shape, tensor.dtype.name):
        return None
    if not is_readable(tensor) or not is_readable(twin):
        return None
    sums = [_checksum(tensor), _checksum(twin)]
    if None not in sums and sums[0] != sums[1]:
        return False
    return same(tensor, twin, source, base, work)


def _checksum(tensor: Tensor) -> int | None:
    """Return the checksum of a tensor that is all of its storage."""
    storage = tensor.storage
    return storage.crc32 if storage is not None and storage.nbytes == tensor.nbytes else None
