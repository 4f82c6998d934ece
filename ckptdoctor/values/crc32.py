"""CRC-32 of long runs of bytes by NumPy, in a third of the time that zlib takes; and of two runs as one.

A CRC is the remainder of a polynomial over GF(2) that all bits together are. It stays the same where a multiple of the
divisor is taken away, such as x^91639 + x^41678 + 1, the shortest of three terms. Its 32nd power is one as well, and
has its terms 91,639 and 41,678 words of 32 bits apart: so every word can be taken away by adding it, which is XOR, to
two words far behind it, and thousands of them at once. What is left are the last 91,639 words, of which zlib gives the
remainder (Russell, "Chorba: a novel CRC32 implementation", 2024, has the idea).
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np

from ckptdoctor.casting.arrays import Array

WORTH = 2 << 20  # bytes of which that is faster, whatever is left in the end
_FAR, _NEAR = 91_639, 91_639 - 41_678  # words between one that is taken away and those that it is added to


class Folding:
    """Takes the CRC-32 of one run of bytes after another, in memory of its own that stays in the cache."""

    def __init__(self) -> None:
        self._ring = np.zeros(_FAR, np.uint32)  # the last words that were folded: each takes the place of its far one
        self._at = 0  # of the next word
        self._before = 0  # the CRC-32 of what came before
        self._begun = False
        self._rest = b""

    def begin(self, crc: int = 0) -> None:
        """Begin a run that follows bytes with this CRC-32."""
        self._ring.fill(0)
        self._at = 0
        self._before, self._begun, self._rest = crc, False, b""

    def feed(self, data: Array) -> None:
        """Take the next bytes of the run."""
        if self._rest:  # which is no whole word: all before it is settled first
            self.begin(self.crc())
        whole = data.size - data.size % 4
        self._rest = data[whole:].tobytes()
        words = data[:whole].view(np.uint32)
        if words.size and not self._begun:  # as if the CRC-32 of what came before were part of the first word
            self._ring[0] = self._before ^ 0xFFFFFFFF
            self._begun = True
        done = 0
        while done < words.size:
            done += self._fold(words[done:])

    def _fold(self, words: Array) -> int:
        """Add to the first words those that are taken away before them; gives how many these are.

        Neither they nor their near ones reach around the end of the ring, or into each other.
        """
        at = self._at
        near = at - _NEAR if at >= _NEAR else at - _NEAR + _FAR
        stop = at + min(words.size, _FAR - max(at, near), _FAR - _NEAR)
        made, count = self._ring[at:stop], stop - at
        np.bitwise_xor(made, words[:count], out=made)
        np.bitwise_xor(made, self._ring[near : near + count], out=made)
        self._at = stop % _FAR
        return count

    def crc(self) -> int:
        """Return the CRC-32 of all that was fed."""
        crc = self._before
        if self._begun:
            last = np.roll(self._ring, -self._at)
            # none of these is taken away, so that none of them is added to another
            last[_NEAR:] ^= last[: _FAR - _NEAR].copy()
            crc = zlib.crc32(last.data, 0xFFFFFFFF)
        return zlib.crc32(self._rest, crc)


# ---- the CRC-32 of two runs, one behind the other, as zlib's ``crc32_combine`` has it: Python offers none


_POLYNOMIAL = 0xEDB88320  # with the lowest power in the highest bit, as all others here


def combined(crc: int, other: int, length: int) -> int:
    """Return the CRC-32 of bytes with ``crc`` that ``length`` bytes with the CRC-32 ``other`` follow."""
    return _times(_power(length), crc) ^ other if length else crc


@lru_cache(maxsize=64)
def _power(length: int) -> int:
    """Return x to the power of 8 times ``length``."""
    found, factor = 1 << 31, 1 << 23
    while length:
        if length & 1:
            found = _times(factor, found)
        factor = _times(factor, factor)
        length >>= 1
    return found


def _times(one: int, other: int) -> int:
    """Return the product of two polynomials over GF(2), modulo that of CRC-32."""
    product = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product
