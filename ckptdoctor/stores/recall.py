"""Remembers what became of a folder: one that lists as it did needs no second look.

Grouping is most of what an audit without changes would do. Every file is still asked for its size and time, since a
folder does not show that a file in it was written to.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Protocol

from ckptdoctor.noun import field, noun

_MODULUS = 1 << 62


def ids(data: bytes = b"") -> array[int]:
    """Return an array of ids, 8 bytes each."""
    return array("q", data)


def sum_of(signatures: Iterable[int]) -> int:
    """Return the sum of signatures, in whatever order."""
    return sum(signatures) % _MODULUS


@noun(frozen=False, eq=False)
class Grouped:
    """What became of a folder. Places are those of its entries in the order of their names.

    ``listed`` is the hash of its listing. ``parts`` are the places of folders that belong to a checkpoint, for each
    checkpoint with any, and ``nested`` is the hash of all files below them. ``below`` are the places of folders that
    are looked into by themselves. ``checkpoints`` are the ids of all its checkpoints, ``signatures`` the sum of theirs.
    ``links`` and ``others`` are as in ``Walk``. What became of it is ``unsure`` where it followed from anything else.
    """

    listed: int
    nested: int = 0
    parts: list[list[int]] = field(default_factory=list)
    below: list[int] = field(default_factory=list)
    checkpoints: array[int] = field(default_factory=ids)
    signatures: int = 0
    links: list[tuple[str, str, str, str]] = field(default_factory=list)
    others: int = 0
    unsure: bool = False

    def add(self, key: int, signature: int) -> None:
        """Note a checkpoint."""
        self.checkpoints.append(key)
        self.signatures = sum_of((self.signatures, signature))

    @property
    def row(self) -> tuple[Any, ...]:
        """The columns of ``listing`` after its id and its store."""
        said = json.dumps([self.parts, self.below, self.links, self.others], separators=(",", ":"))
        return self.listed, self.nested, self.signatures, self.checkpoints.tobytes(), said


def grouped(row: tuple[Any, ...]) -> Grouped:
    """Return what ``Grouped.row`` was of."""
    listed, nested, signatures, checkpoints, said = row
    parts, below, links, others = json.loads(said)
    links = [(run, source, kind, target) for run, source, kind, target in links]
    return Grouped(listed, nested, parts, below, ids(checkpoints), signatures, links, others)


def hash_of(before: int, said: object) -> int:
    """Return a hash of what is said and of what was said before."""
    data = f"{before} {said!r}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") >> 1


class Memory(Protocol):
    """Keeps what became of folders from one audit to the next."""

    def recall(self, folder: str) -> Grouped | None:
        """Return what became of a folder the last time, None where that is not known."""

    def holds(self, known: Grouped) -> bool:
        """Return whether its checkpoints were all examined as they were then, and note that these are there.

        Where one is to be examined, nothing is noted.
        """

    def keep(self, folder: str, found: Grouped) -> None:
        """Keep what became of a folder."""
