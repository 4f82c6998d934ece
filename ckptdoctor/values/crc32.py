"""CRC-32 of long runs of bytes by NumPy, in a third of the time that zlib takes; and of two runs as one.

A CRC is the remainder of a polynomial over GF(2) that all bits together are. It stays the same where a multiple of the
divisor is taken away, such as x^91639 + x^41678 + 1, the shortest of three terms. Its 32nd power is one as well, and
has its terms 91,639 and 41,678 words of 32 bits apart: so every word can be taken away by adding it, which is XOR, to
two words far behind it, and thousands of them at once. Of the last 91,639 words, which are left, the 16th and the 8th
power take away three quarters in the same way, and zlib gives the remainder of the rest (Russell, "Chorba: a novel
CRC32 implementation", 2024, has the idea).
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np

from ckptdoctor.casting.arrays import Array, room

WORTH = 1 << 20  # bytes of which that is faster, whatever is left in the end
_FAR, _NEAR = 91_639, 91_639 - 41_678  # words between one that is taken away and those that it is added to
_BEFORE = -(-_FAR * 4 // 64) * 64  # bytes in front of those that are read, which begin with a line of the cache


class Folding:
    """Takes the CRC-32 of one run of bytes after another, where they were read to: right behind those before them.

    ``room`` is where to read the next bytes to; ``take`` adds them to the run, and overwrites them.
    """

    def __init__(self) -> None:
        self._memory = room(_BEFORE, "uint8")
        self._blocks: list[tuple[Array, Array, Array]] = []
        self._before = 0  # the CRC-32 of what came before
        self._begun = False
        self._rest = b""

    def room(self, length: int) -> Array:
        """Return memory for so many bytes; what was there is lost."""
        if self._memory.size < _BEFORE + length:
            blocks = -(-length // (4 * _NEAR))
            larger = room(_BEFORE + blocks * 4 * _NEAR, "uint8")
            larger[:_BEFORE] = self._memory[:_BEFORE]
            self._memory = larger
            self._blocks = [self._block(number) for number in range(blocks)]
        return self._memory[_BEFORE : _BEFORE + length]

    def _block(self, number: int) -> tuple[Array, Array, Array]:
        """Return as many words as there are between a word and its near one; and the two that are added to each."""
        words = self._words((number + 1) * _NEAR)
        return words[-_NEAR:], words[-_NEAR - _FAR : -_FAR], words[-2 * _NEAR : -_NEAR]

    def _words(self, count: int) -> Array:
        """Return the last words that were taken, and so many behind them."""
        return self._memory[_BEFORE - 4 * _FAR : _BEFORE + 4 * count].view(np.uint32)

    def begin(self, crc: int = 0) -> None:
        """Begin a run that follows bytes with this CRC-32."""
        self._words(0).fill(0)
        self._before, self._begun, self._rest = crc, False, b""

    def take(self, length: int) -> None:
        """Add the first bytes of ``room`` to the run, as they are in the file."""
        if self._rest:  # which is no whole word: all before it is settled first
            self.begin(self.crc())
        count = length // 4
        words = self._words(count)
        self._rest = self.room(length)[4 * count :].tobytes()
        if count and not self._begun:  # as if the CRC-32 of what came before were part of the first word
            words[0] = self._before ^ 0xFFFFFFFF
            self._begun = True
        several, rest = divmod(count, _NEAR)
        for made, far, near in self._blocks[:several]:  # other threads wait for what is done in Python
            np.bitwise_xor(made, far, made)
            np.bitwise_xor(made, near, made)
        if rest:
            made, far, near = (each[:rest] for each in self._blocks[several])
            made ^= far
            made ^= near
        words[:_FAR] = words[count:]

    def crc(self) -> int:
        """Return the CRC-32 of all that was taken."""
        crc = self._before
        if self._begun:
            last = self._words(0).copy()
            # none of these is taken away, so that none of them is added to another
            last[_NEAR:] ^= last[: _FAR - _NEAR].copy()
            crc = zlib.crc32(_latter_half(_latter_half(last.view(np.uint16)).view(np.uint8)).data, 0xFFFFFFFF)
        return zlib.crc32(self._rest, crc)


def _latter_half(units: Array) -> Array:
    """Take away the former half of twice ``_FAR`` units: bytes, or words of 16 bits."""
    for at in range(0, _FAR, _NEAR):
        gone = units[at : min(at + _NEAR, _FAR)]
        for distance in (_NEAR, _FAR):
            units[at + distance : at + distance + gone.size] ^= gone
    return units[_FAR:]


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
