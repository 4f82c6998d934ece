"""The integrity of a checkpoint whose bytes pass by once, from the first to the last, while somebody reads its values.

Two tensors are never there at the same time: whether they have the same bytes is told by digests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Source, Tensor
from ckptdoctor.facts.integrity import Damage, Integrity, Scan, may_have_holes, note_of, readable
from ckptdoctor.facts.same_bytes import is_readable
from ckptdoctor.facts.tied_embeddings import TiedPair, tied_pairs

if TYPE_CHECKING:
    from hashlib import _Hash


class Overheard:
    """What is known of the storages of a checkpoint so far; no two of them share bytes, and each is its tensor's."""

    def __init__(self, checkpoint: Checkpoint, source: Source) -> None:
        self._coming = readable(checkpoint, source)[::-1]  # the next one comes last
        self._begun: Scan | None = None
        self._damage: list[Damage] = []
        self._digests: dict[str, _Hash] = {}
        self._over: set[str] = set()
        self._read = 0
        for pair in tied_pairs(checkpoint):
            for tensor in (pair.head, pair.embedding):
                if pair.same is None and is_readable(tensor) and tensor.storage is not None:
                    self._digests[tensor.storage.key] = sha256()

    def hear(self, at: int, piece: bytes) -> None:
        """The next bytes of the file, which begin at byte ``at``."""
        stop = at + len(piece)
        while self._coming:
            storage, extent = self._coming[-1]
            end = extent.offset + extent.length
            if extent.offset >= stop and extent.length:
                return
            part = piece[max(0, extent.offset - at) : max(0, end - at)]
            if self._begun is None:
                self._begun = Scan(storage, extent)
            if may_have_holes(storage) and part:
                self._begun.feed(part)
                self._read += len(part)
            if storage.key in self._digests:
                self._digests[storage.key].update(part)
            if end > stop:
                return
            self._coming.pop()
            self._damage += self._begun.damage()
            self._begun = None
            self._over.add(storage.key)

    def integrity(self, checkpoint: Checkpoint, source: Source) -> Integrity:
        """What was heard of the storages that came to their end.

        ``checkpoint`` is the same one as it is known now: where the file ended early, its last extents are others.
        """
        places = {storage.key: (storage, extent) for storage, extent in readable(checkpoint, source)}
        found = [replace(each, storage=places[each.storage.key][0]) for each in self._damage]
        if self._begun is not None and self._begun.storage.key in places:
            storage, extent = places[self._begun.storage.key]
            if self._begun.fed == extent.length:  # all that there is of it
                self._begun.ends_early(storage, extent)
                found += self._begun.damage()
        unchecked = sum(storage.crc32 is None for storage, _ in places.values())
        notes = tuple([note_of(each) for each in found])
        return Integrity(checkpoint, tuple(found), self._read, unchecked, notes, twins=tuple(self._twins(checkpoint)))

    def _twins(self, checkpoint: Checkpoint) -> Iterator[TiedPair]:
        for pair in tied_pairs(checkpoint):
            one, other = self._digest(pair.head), self._digest(pair.embedding)
            if one is not None and other is not None:
                yield TiedPair(pair.head, pair.embedding, one == other)

    def _digest(self, tensor: Tensor) -> bytes | None:
        """None where it was not asked for, or the tensor was not heard to its end."""
        key = tensor.storage.key if tensor.storage is not None else ""
        return self._digests[key].digest() if key in self._over and key in self._digests else None
