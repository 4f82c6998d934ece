"""Keeps units on disk until their turn comes, and makes batches of them: a store may have more than memory has room."""

from __future__ import annotations

import marshal
import os
from collections import deque
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
        self._begin = self._end = 0  # of what in the file was not taken
        self._last: list[tuple[tuple[Any, ...], bool]] = []  # that are written together
        self._first: deque[tuple[tuple[Any, ...], bool]] = deque()  # that were read together
        self._parts: deque[Batch] = deque()  # of the unit that was taken last
        self._taken = 0
        self.units = 0
        self.bytes = 0

    def add(self, unit: Unit, *, deep: bool = False) -> None:
        """Have a unit wait."""
        self._last.append((unit.plain, deep))
        if len(self._last) >= SETS:
            data = marshal.dumps(self._last)
            self._file.seek(self._end)
            self._end += self._file.write(len(data).to_bytes(_LENGTH, "little") + data)
            self._last.clear()
        self.units += 1
        self.bytes += unit.bytes

    def _read(self) -> bool:
        """Have the first one ready; return whether there is one."""
        if not self._first and self._begin < self._end:
            self._file.seek(self._begin)
            length = int.from_bytes(self._file.read(_LENGTH), "little")
            self._first.extend(marshal.loads(self._file.read(length)))
            self._begin += _LENGTH + length
        elif not self._first:
            self._first.extend(self._last)
            self._last.clear()
        return bool(self._first)

    def batch(self, workers: int, rate: float = 0.0, *, split: bool = False, more: bool = False) -> Batch | None:
        """Return the next: at most 64 units, or 4 GiB of what is read to its last byte; None where none waits.

        The last ones are smaller and smaller, so that no worker has many left when the others are done. Where ``more``
        are still added, nobody knows how many are left: it is taken for as many as there were, and so the first ones
        are small, too. ``split`` gives those of more than 8 GiB in parts.
        """
        if self._parts:
            return self._parts.popleft()
        left = self.units if more else self.units - self._taken
        most = max(1, min(SETS, left // (workers * _SPREAD)))
        units: list[tuple[Any, ...]] = []
        size, kind = 0, False
        while len(units) < most and self._read():
            plain, deep = self._first[0]
            weight = sum(each[2] for each in plain[3]) if deep else 0
            if units and (deep != kind or size + weight > BYTES):
                break
            self._first.popleft()
            self._taken += 1
            if split and weight > SPLIT:
                of = -(-weight // SPLIT)
                self._parts.extend([Batch((plain,), True, rate, part=(number, of)) for number in range(of)])
                return self._parts.popleft()
            units.append(plain)
            size, kind = size + weight, deep
        return Batch(tuple(units), kind, rate) if units else None

    def close(self) -> None:
        """Give the room back."""
        self._file.close()
