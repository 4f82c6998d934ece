"""Keeps units on disk until their turn comes, and makes batches of them: a store may have more than memory has room."""

from __future__ import annotations

import marshal
import os
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import Any

from ckptdoctor.noun import noun, replace
from ckptdoctor.stores.listing import Unit

SETS = 64  # checkpoints in a batch
BYTES = 4 << 30  # of their files, where every byte is read
SPLIT = 8 << 30  # bytes of one checkpoint from which on it is read in parts of so many
_LENGTH = 8  # bytes
_SPREAD = 4  # batches for each worker, at least, of what is left


@noun
class Batch:
    """Some units, as ``Unit.plain`` has them; ``deep``: every byte of them is read.

    ``rate`` is how many bytes a second are read of them at most, 0 for any number. ``again``: it is the second time,
    for a unit that was alone when whoever examined it died. ``part`` (K, N): of the one unit only the K-th part of N,
    from 0 on, is read; ``read`` are all its parts.
    """

    units: tuple[tuple[Any, ...], ...]
    deep: bool = False
    rate: float = 0.0
    again: bool = False
    part: tuple[int, int] | None = None
    read: tuple[Any, ...] = ()

    @property
    def how(self) -> tuple[Any, ...]:
        """What is done with each unit, plain: see ``parts.result_of``."""
        return self.deep, self.part, self.read

    @property
    def halves(self) -> tuple[Batch, Batch]:
        """The same units in two batches."""
        middle = len(self.units) // 2
        return replace(self, units=self.units[:middle]), replace(self, units=self.units[middle:])


class Waiting:
    """Units that wait, in a file without a name in ``folder``. They are taken in the order in which they came."""

    def __init__(self, folder: str) -> None:
        self._file = TemporaryFile(dir=folder if os.access(folder, os.W_OK) else None)  # noqa: SIM115  until close
        self._some: list[tuple[tuple[Any, ...], bool]] = []  # that are written together
        self.units = 0
        self.bytes = 0

    def add(self, unit: Unit, *, deep: bool = False) -> None:
        """Have a unit wait; none is added any more once some were taken."""
        self._some.append((unit.plain, deep))
        if len(self._some) >= SETS:
            self._write()
        self.units += 1
        self.bytes += unit.bytes

    def _write(self) -> None:
        data = marshal.dumps(self._some)
        self._file.write(len(data).to_bytes(_LENGTH, "little") + data)
        self._some.clear()

    def _read(self) -> Iterator[tuple[tuple[Any, ...], bool]]:
        self._write()
        self._file.seek(0)
        while length := self._file.read(_LENGTH):
            yield from marshal.loads(self._file.read(int.from_bytes(length, "little")))

    def batches(self, workers: int, rate: float = 0.0, *, split: bool = False) -> Iterator[Batch]:
        """Yield them in batches of at most 64 units, or 4 GiB of what is read to its last byte; larger ones alone.

        The last ones are smaller and smaller, so that no worker has many left when the others are done. ``split``
        yields those of more than 8 GiB in parts.
        """
        waiting: list[tuple[Any, ...]] = []
        size, kind = 0, False
        most = max(1, min(SETS, self.units // (workers * _SPREAD)))
        for at, (plain, deep) in enumerate(self._read()):
            weight = sum(each[2] for each in plain[3]) if deep else 0
            if waiting and (deep != kind or len(waiting) >= most or size + weight > BYTES):
                yield Batch(tuple(waiting), kind, rate)
                waiting, size = [], 0
                most = max(1, min(SETS, (self.units - at) // (workers * _SPREAD)))
            if split and weight > SPLIT:
                of = -(-weight // SPLIT)
                yield from [Batch((plain,), True, rate, part=(number, of)) for number in range(of)]
                continue
            waiting.append(plain)
            size, kind = size + weight, deep
        if waiting:
            yield Batch(tuple(waiting), kind, rate)

    def close(self) -> None:
        """Give the room back."""
        self._file.close()
