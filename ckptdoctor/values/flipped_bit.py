"""Finds the one flipped bit that explains a wrong CRC-32, without another copy: the discrete logarithm of a polynomial.

A CRC is linear: flipping one bit changes the checksum of a record by x^(32 + d) modulo the CRC's polynomial, where d is
how many bits follow it. That polynomial is primitive, of order 2^32 - 1, so that d is found by its difference alone,
with the steps of a baby and a giant (Shanks 1971), and is the only one in a record of less than 512 MiB.

Any other damage changes the checksum by a difference that looks random, and is the same as that of some bit of the
record with a chance of its bits in 2^32.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt

SAFE = 1e-4  # a smaller chance of a mistake is taken without another witness: records of up to 53 kB
_POLYNOMIAL = 0xEDB88320  # of zip's CRC-32; bit 31 is x^0
_ONE = 1 << 31
_ORDER = (1 << 32) - 1
_ALL = (1 << 32) - 1
_WIDTH = 32


def chance_of_mistake(nbytes: int) -> float:
    """Return how probable it is that other damage of so many bytes looks like one flipped bit."""
    return min(1.0, nbytes * 8 / (1 << _WIDTH))


def flipped_bits(nbytes: int, stated: int, computed: int) -> Iterator[tuple[int, int]]:
    """Yield each bit that can have been flipped: the byte of the record, and which of its bits (0: the lowest).

    ``stated`` is the CRC-32 of the ``nbytes`` bytes as they were, ``computed`` that of those that are there. There is
    at most one below 512 MiB, found in at most 0.1 s.
    """
    distance = _logarithm(_divided(stated ^ computed), nbytes * 8) if stated != computed else None
    while distance is not None and distance < nbytes * 8:
        yield nbytes - 1 - distance // 8, 7 - distance % 8
        distance += _ORDER


def _times_x(value: int) -> int:
    return value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)


def _by_x(value: int) -> int:
    return (value ^ _POLYNOMIAL) << 1 & _ALL | 1 if value & _ONE else value << 1


def _divided(value: int) -> int:
    """Return a difference divided by x^32: the checksum of the bits behind a flipped one, and of that bit."""
    for _ in range(_WIDTH):
        value = _by_x(value)
    return value


def _logarithm(wanted: int, bits: int) -> int | None:
    """Return the d below ``bits`` (and below the order) of which ``wanted`` is x^d; None where there is none."""
    bits = min(bits, _ORDER)
    stride = isqrt(bits) + 1
    near, value = {}, _ONE
    for steps in range(stride):
        near[value] = steps
        value = _times_x(value)
    tables = _tables(stride)
    for giant in range(stride):
        if wanted in near:
            found = giant * stride + near[wanted]
            return found if found < bits else None
        low, second, third, high = tables
        wanted = low[wanted & 255] ^ second[wanted >> 8 & 255] ^ third[wanted >> 16 & 255] ^ high[wanted >> 24]
    return None


def _tables(stride: int) -> tuple[list[int], ...]:
    """Return what each value of each byte becomes when it is divided by x^stride."""
    powers = []
    for bit in range(_WIDTH):
        value = 1 << bit
        for _ in range(stride):
            value = _by_x(value)
        powers.append(value)
    return tuple([_sums(powers[first : first + 8]) for first in range(0, _WIDTH, 8)])


def _sums(powers: list[int]) -> list[int]:
    found = [0]
    for power in powers:
        found += [each ^ power for each in found]
    return found
