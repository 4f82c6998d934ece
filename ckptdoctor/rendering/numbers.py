"""Writes numbers as people read them: 1,124 · 25.6 M · 307 MB. Integers of any size are safe to show."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.wording import PRINTABLE_BITS
from ckptdoctor.wording import count as count
from ckptdoctor.wording import plural as plural


def size(nbytes: int) -> str:
    """Return ``307 MB``, ``1.5 GB``, ``512 bytes``: decimal units, as disks are sold."""
    return _scaled(nbytes, (" bytes", " kB", " MB", " GB", " TB", " PB")) if nbytes != 1 else "1 byte"


def amount_of(number: int, noun: str) -> str:
    """Return how many elements, with their noun: ``25.6 M parameters``, ``1 element``."""
    return f"{amount(number)} {noun}{'' if number == 1 else 's'}"


def amount(number: int) -> str:
    """Return how many elements, to three digits: ``25.6 M``, ``75.0 k``, ``812``."""
    return _scaled(number, ("", " k", " M", " B", " T"), fraction_below=100)


def shape(sizes: Sequence[int]) -> str:
    """Return a shape as ``[64, 3, 7, 7]``."""
    return f"[{', '.join(map(plain, sizes))}]"


def plain(number: int) -> str:
    """Return ``1124``, without separators."""
    return count(number).replace(",", "")


def _scaled(number: int, units: Sequence[str], fraction_below: int = 10) -> str:
    if abs(number) < 1000 or number.bit_length() > PRINTABLE_BITS:
        return count(number) + units[0]
    power = 1
    while power < len(units) - 1 and abs(number) >= 999.5 * 1000**power:
        power += 1
    value = number / 1000**power
    return f"{value:,.1f}{units[power]}" if abs(value) < fraction_below - 0.05 else f"{value:,.0f}{units[power]}"
