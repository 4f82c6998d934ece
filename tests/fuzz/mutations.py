"""Seeded damage to bytes: what disks, networks and attackers do to a file."""

from __future__ import annotations

import random

# numbers that sit on the edge of what a length or an offset can be
EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """``data`` after one to four random changes."""
    for _ in range(chance.randint(1, 4)):
        data = chance.choice(KINDS)(data, chance)
    return data


def _place(data: bytes, chance: random.Random) -> int:
    return chance.randrange(len(data) + 1)


def flip(data: bytes, chance: random.Random) -> bytes:
    """One bit."""
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def replace(data: bytes, chance: random.Random) -> bytes:
    """A few random bytes in place of others."""
    at = _place(data, chance)
    new = chance.randbytes(chance.randint(1, 8))
    return data[:at] + new + data[at + len(new) :]


def cut(data: bytes, chance: random.Random) -> bytes:
    """The end goes."""
    return data[: _place(data, chance)]


def drop(data: bytes, chance: random.Random) -> bytes:
    """A piece out of the middle goes."""
    at = _place(data, chance)
    return data[:at] + data[at + chance.randint(1, 64) :]


def repeat(data: bytes, chance: random.Random) -> bytes:
    """A piece stands twice."""
    at, length = _place(data, chance), chance.randint(1, 256)
    return data[: at + length] + data[at:]


def zero(data: bytes, chance: random.Random) -> bytes:
    """A hole."""
    at, length = _place(data, chance), chance.randint(1, 512)
    return data[:at] + bytes(len(data[at : at + length])) + data[at + length :]


def edge(data: bytes, chance: random.Random) -> bytes:
    """An extreme number of 1, 2, 4 or 8 bytes."""
    at, width = _place(data, chance), chance.choice((1, 2, 4, 8))
    number = (chance.choice(EDGES) % 256**width).to_bytes(width, "little")
    return data[:at] + number + data[at + width :]


def swap(data: bytes, chance: random.Random) -> bytes:
    """Two pieces change places."""
    first, second = sorted((_place(data, chance), _place(data, chance)))
    length = chance.randint(1, 64)
    if first + length > second:
        return data
    a, b = data[first : first + length], data[second : second + length]
    return data[:first] + b + data[first + length : second] + a + data[second + length :]


KINDS = (flip, flip, replace, cut, drop, repeat, zero, edge, edge, swap)
