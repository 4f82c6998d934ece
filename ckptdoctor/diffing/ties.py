"""Finds tensors that share their memory on one side and not on the other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.process import collector_paused
from ckptdoctor.checkpoint.sharing import view_in_file
from ckptdoctor.differences import Pair, Single, Tie

# what makes tensors out of files that hold each under its own name alone
_WITHOUT_TIES = ("safetensors", "torch.distributed.checkpoint", "numpy.")

StoragePlace = tuple[str, int, int]


@collector_paused()
def ties(pairs: Sequence[Pair], removed: Sequence[Single], added: Sequence[Single]) -> tuple[Tie, ...]:
    """Those of A, then those of B, in file order."""
    here = _shared([*[pair.a for pair in pairs], *[each.tensor for each in removed]])
    there = _shared([*[pair.b for pair in pairs], *[each.tensor for each in added]])
    return (
        *_ties("a", [(pair.name, pair.a, pair.b) for pair in pairs if _place(pair.a) in here], removed, here),
        *_ties("b", [(pair.name_b, pair.b, pair.a) for pair in pairs if _place(pair.b) in there], added, there),
    )


def _shared(tensors: Sequence[Tensor]) -> set[StoragePlace]:
    """The places where several tensors begin: in nearly every file there are few."""
    seen: set[StoragePlace] = set()
    twice: set[StoragePlace] = set()
    for tensor in tensors:
        place = _place(tensor)
        if place is not None:
            (twice if place in seen else seen).add(place)
    return twice


def _place(tensor: Tensor) -> StoragePlace | None:
    """The place of its first element; None where that cannot be a tie."""
    storage = tensor.storage
    if storage is None or storage.extent is None or not tensor.numel:
        return None
    return storage.extent.file, storage.extent.offset, tensor.offset


def _ties(
    side: str, both: Sequence[tuple[str, Tensor, Tensor]], alone: Sequence[Single], shared: set[StoragePlace]
) -> Iterator[Tie]:
    """The tensors that are one on this side, of which the other makes several, or lacks some."""
    groups: dict[Hashable, list[tuple[str, Tensor]]] = {}
    for name, mine, its in both:
        groups.setdefault(view_in_file(mine), []).append((name, its))
    missing: dict[Hashable, list[str]] = {}
    for each in alone:
        if _place(each.tensor) in shared and (view := view_in_file(each.tensor)) in groups:
            missing.setdefault(view, []).append(each.name)
    for view, group in groups.items():
        gone = missing.get(view, [])
        several = len({view_in_file(its) for _, its in group}) > 1
        if several or gone:
            counts = several and not any(its.rebuild.startswith(_WITHOUT_TIES) for _, its in group)
            yield Tie(side, tuple([name for name, _ in group]), tuple(gone), several, counts)
