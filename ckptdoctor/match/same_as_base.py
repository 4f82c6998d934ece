"""Tensors of a checkpoint that have the very bytes of those of another one: training has not changed them."""

from __future__ import annotations

from collections.abc import Callable

from ckptdoctor.checkpoint import Checkpoint, Source, StateDict, Tensor
from ckptdoctor.errors import StoppedError
from ckptdoctor.facts.same_bytes import is_readable, same
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


def same_as_base(
    comparison: Comparison, source: Source, other: Checkpoint, base: Source, going: Callable[[int], bool]
) -> SameAsBase:
    """Compare the bytes of the tensors; ``going`` gets the number of bytes done, and says whether to go on.

    What stored checksums tell apart is not read. ``base`` are the bytes of ``other``, which the reference is. Raises
    TruncatedError when a file shrinks meanwhile, and StoppedError once ``going`` says False.
    """
    assert comparison.state_dict is not None
    theirs = _tensors(other, comparison)
    found: dict[bool | None, list[Tensor]] = {True: [], False: [], None: []}
    done = 0

    def count(length: int) -> None:
        nonlocal done
        done += length
        if not going(done):
            raise StoppedError

    for tensor in comparison.state_dict.tensors:
        name = comparison.final_name(tensor.key)
        if name not in comparison.renamed.twins:
            before = done
            found[_compared(source, tensor, base, theirs.get(name), count)].append(tensor)
            count(before + tensor.nbytes - done)  # of those that differ not all was read
    return SameAsBase(comparison, tuple(found[True]), tuple(found[False]), tuple(found[None]))


def _tensors(other: Checkpoint, comparison: Comparison) -> dict[str, Tensor]:
    root = comparison.reference.root
    wanted: StateDict | None = next((each for each in other.state_dicts if each.path == root), None)
    return {each.key: each for each in wanted.tensors} if wanted is not None else {}


def _compared(
    source: Source, tensor: Tensor, base: Source, twin: Tensor | None, count: Callable[[int], None]
) -> bool | None:
    if twin is None or (twin.shape, twin.dtype.name) != (tensor.shape, tensor.dtype.name):
        return None
    if not is_readable(tensor) or not is_readable(twin):
        return None
    sums = [_checksum(tensor), _checksum(twin)]
    if None not in sums and sums[0] != sums[1]:
        return False
    return same(tensor, twin, source, base, count)


def _checksum(tensor: Tensor) -> int | None:
    """The checksum of a tensor that is all of its storage."""
    storage = tensor.storage
    return storage.crc32 if storage is not None and storage.nbytes == tensor.nbytes else None
