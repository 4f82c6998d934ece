"""A flipped bit is found by its checksum, wherever it is; what is not one flipped bit is hardly ever taken for one."""

from __future__ import annotations

import random
import zlib

import pytest

from ckptdoctor.values.flipped_bit import SAFE, chance_of_mistake, flipped_bits

LONGEST = int(SAFE * (1 << 32)) // 8  # bytes of a record whose checksum is believed by itself


def changed(raw, damage):
    """The same bytes, damaged."""
    found = bytearray(raw)
    damage(found)
    return found


def flip(chances):
    """A bit that is flipped somewhere."""

    def damage(raw):
        raw[chances.randrange(len(raw))] ^= 1 << chances.randrange(8)

    return damage


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_every_bit_of_a_short_record_is_found(size):
    """The first, the last, and all between them."""
    raw = random.Random(size).randbytes(size)
    for at in range(size):
        for bit in range(8):
            found = changed(raw, lambda raw, at=at, bit=bit: raw.__setitem__(at, raw[at] ^ 1 << bit))
            assert list(flipped_bits(size, zlib.crc32(raw), zlib.crc32(found))) == [(at, bit)]


def test_a_long_record_takes_a_fraction_of_a_second():
    """Of 256 MiB: the checksums of zeros are those of any bytes, for only the difference counts."""
    size, at = 1 << 28, 123_456_789
    flipped = zlib.crc32(bytes(size - at - 1), zlib.crc32(b"\x10", zlib.crc32(bytes(at))))
    assert list(flipped_bits(size, zlib.crc32(bytes(size)), flipped)) == [(at, 4)]


def test_a_checksum_that_fits_is_explained_by_nothing():
    """No bit was flipped."""
    assert list(flipped_bits(10, 5, 5)) == []


@pytest.mark.slow
def test_planted_flips_are_all_found(scale):
    """Ten thousand of them, in records of up to a few megabytes."""
    for _, chances in scale.cases(10_000, at_least=200):
        raw = chances.randbytes(int(2 ** chances.uniform(0, 22)))
        found = changed(raw, flip(chances))
        ((at, bit),) = flipped_bits(len(raw), zlib.crc32(raw), zlib.crc32(found))
        found[at] ^= 1 << bit
        assert found == raw


def other_damage(chances, raw):
    """Two bits, a burst, a sector of zeros, or bytes that belong elsewhere."""
    size = len(raw)
    kind = chances.randrange(4)
    at = chances.randrange(size)
    if kind == 0:
        flip(chances)(raw)
        flip(chances)(raw)
    elif kind == 1:
        raw[at : at + 64] = chances.randbytes(min(64, size - at))
    elif kind == 2:
        raw[at : at + 512] = bytes(min(512, size - at))
    else:
        other = chances.randrange(size)
        raw[at : at + 16], raw[other : other + 16] = raw[other : other + 16], raw[at : at + 16]
        del raw[size:]


@pytest.mark.parametrize("most", [pytest.param(500, id="some"), pytest.param(10_000, marks=pytest.mark.slow)])
def test_other_damage_is_hardly_ever_taken_for_a_flip(most):
    """At most as often as the chance that is printed for records of this size allows, which is below one in 10,000."""
    wrong, expected = 0, 0.0
    for case in range(most):
        chances = random.Random(case)
        raw = chances.randbytes(chances.randrange(1000, LONGEST))
        damaged = changed(raw, lambda found, chances=chances: other_damage(chances, found))
        differing = sum((one ^ other).bit_count() for one, other in zip(raw, damaged, strict=False) if one != other)
        if differing > 1 and len(damaged) == len(raw):
            wrong += bool(list(flipped_bits(len(raw), zlib.crc32(raw), zlib.crc32(damaged))))
            expected += chance_of_mistake(len(raw))
            assert chance_of_mistake(len(raw)) <= SAFE
    assert wrong <= 1 + 3 * expected
