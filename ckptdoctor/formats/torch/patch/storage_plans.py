"""Plans which bytes make up each storage of an edited file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import cached_property

from ckptdoctor.checkpoint import Storage
from ckptdoctor.noun import noun

# reads ``length`` bytes at ``offset`` of a storage of the original, by its key
ReadStorage = Callable[[str, int, int], bytes]

Piece = tuple[int, int]  # offset in the old storage, length; both in bytes


@noun
class StoragePlan:
    """One storage of the output, ``key`` being its new name.

    ``pieces`` are the byte ranges of ``old`` that make it up, one after another; one piece that covers all of it means
    that it is untouched. Where ``generate`` is given (and ``pieces`` is None), it makes the bytes chunk by chunk out of
    what it reads from the storages ``sources``; it may be called more than once. ``data`` is given for a storage that
    had none before, whose bytes were in the pickle; ``old`` then only describes it, as it does without ``sources``.
    ``itemsize`` are the bytes of an element that ``generate`` makes.
    """

    key: str
    nbytes: int
    pieces: tuple[Piece, ...] | None
    old: Storage
    generate: Callable[[ReadStorage], Iterator[bytes]] | None = None
    data: bytes | None = None
    sources: tuple[str, ...] = ()
    itemsize: int | None = None

    @property
    def new(self) -> bool:
        """Whether its bytes come from no storage of the original."""
        return self.data is not None or (self.generate is not None and not self.sources)


class Numbering(Enum):
    """When the storages get torch's numbers, 0, 1, 2 … in the order of first use, as their keys."""

    AS_NEEDED = "as needed"  # when storages were dropped or made
    ALWAYS = "always"
    KEPT = "kept"  # never: keys stay, and new storages get free numbers


@noun(slots=False)
class Edited:
    """``plans`` are the storages of the output, in the order in which its pickle first uses them.

    None: they are all storages that there were, ``untouched``, in their order and under their keys.
    """

    plans: tuple[StoragePlan, ...] | None
    untouched: tuple[Storage, ...] = ()

    @cached_property
    def storages(self) -> tuple[StoragePlan, ...]:
        """Every plan: of what is untouched they are only made for who asks."""
        return tuple(map(whole, self.untouched)) if self.plans is None else self.plans


def whole(storage: Storage, key: str | None = None) -> StoragePlan:
    """Return the plan for a storage that stays as it is, perhaps under another key."""
    pieces = ((0, storage.nbytes),) if storage.nbytes else ()
    return StoragePlan(storage.key if key is None else key, storage.nbytes, pieces, storage)


def narrowed(pieces: tuple[Piece, ...], kept: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Return what ``kept``, ranges of the storage that ``pieces`` make, are in the storage that these are of."""
    found: list[Piece] = []
    for start, length in kept:
        at = 0
        for origin, size in pieces:
            begin, end = max(start, at), min(start + length, at + size)
            if begin < end:
                found.append((origin + begin - at, end - begin))
            at += size
    return tuple(found)
