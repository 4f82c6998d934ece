"""Explains damaged storages by one flipped bit each, and decides which of these explanations may be acted upon.

Other damage looks like one flipped bit with a small chance, which grows with the record. Below ``SAFE`` the checksum is
believed; above, only where a seal or a published SHA-256 agrees that the healed bytes are those that were saved.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import sha256

from ckptdoctor.checkpoint import KeyPath, Source, Storage
from ckptdoctor.edits.grafts import HealedTensor
from ckptdoctor.errors import DamagedError, UnreadableError
from ckptdoctor.examine.promised_checksums import promise_of
from ckptdoctor.noun import noun
from ckptdoctor.sealing.manifest import Region, joined, read_seal, seal_beside
from ckptdoctor.values.damage import Damage
from ckptdoctor.values.flipped_bit import SAFE, chance_of_mistake, flipped_bits

_CHUNK = 4 << 20  # bytes that are read at once


@noun
class FlippedBit:
    """One bit of a storage that explains its checksum: ``byte`` is what byte ``offset`` of the file was.

    ``chance`` is how often other damage looks the same, from 0 to 1. ``vouched`` names what says that the storage was
    this: a seal, or a published checksum of the file; "" where only its own checksum does.
    """

    storage: Storage
    offset: int
    bit: int
    byte: int
    chance: float
    vouched: str = ""

    @property
    def certain(self) -> bool:
        """Whether it may be flipped back."""
        return bool(self.vouched) or self.chance < SAFE

    @property
    def doubt(self) -> str:
        """Why it may not, where it is not certain."""
        return f"a flipped bit in byte {self.offset:,} would explain it, but only a seal or a SHA-256 proves it"

    def in_tensor(self, path: KeyPath) -> HealedTensor:
        """Return what is reported of a tensor of this storage once the bit is flipped back."""
        return HealedTensor(path, self.offset, self.bit, self.chance, self.vouched)


def explained(damage: Iterable[Damage], source: Source) -> list[FlippedBit]:
    """Return the bit that explains the damage of each storage of which there is one; reads storages only to be sure."""
    every = list(damage)
    found = [bit for each in every for bit in _candidates(each, source)]
    regions = _sealed_regions(source) if found else {}
    found = [_by_seal(each, regions, source) for each in found]
    alone = {each.storage.key for each in found if not each.certain}
    if alone and len({each.storage.key for each in every}) == len({each.storage.key for each in found}) == len(found):
        found = _by_promise(found, source)
    doubted = {each.storage.key for each in every if each.holes}
    return [each for each in found if each.vouched or each.storage.key not in doubted]


def _candidates(damage: Damage, source: Source) -> Sequence[FlippedBit]:
    storage, stated = damage.storage, damage.storage.crc32
    extent = storage.extent
    if stated is None or damage.computed is None or storage.compressed or extent is None:
        return ()
    if extent.length != storage.nbytes:
        return ()
    chance = chance_of_mistake(storage.nbytes)
    part = source.part(extent.file)
    bits = list(flipped_bits(storage.nbytes, stated, damage.computed))
    if len(bits) != 1:  # above 512 MiB there may be two, of which neither is known to be right
        return ()
    ((at, bit),) = bits
    was = part.read(extent.offset + at, 1)[0] ^ 1 << bit
    return (FlippedBit(storage, extent.offset + at, bit, was, chance),)


# ---- seals


def _sealed_regions(source: Source) -> dict[tuple[int, int], tuple[str, Region, int]]:
    """Return the regions of the seal of a local file by their places, each with the seal's name and block size."""
    name = seal_beside(source.path)
    if source.file != source.path or not os.path.isfile(name):
        return {}
    try:
        seal = read_seal(name)
    except (DamagedError, UnreadableError):  # ckptdoctor verify says what is wrong with it
        return {}
    told = f"its seal {os.path.basename(name)}"
    return {
        (region.offset, region.length): (told, region, seal.block) for file in seal.files for region in file.regions
    }


def _by_seal(found: FlippedBit, regions: dict[tuple[int, int], tuple[str, Region, int]], source: Source) -> FlippedBit:
    extent = found.storage.extent
    assert extent is not None
    sealed = regions.get((extent.offset, extent.length))
    if sealed is None:
        return found
    told, region, block = sealed
    blocks = []
    for at in range(extent.offset, extent.offset + extent.length, block):
        data = bytearray(source.read(at, min(block, extent.offset + extent.length - at)))
        if at <= found.offset < at + len(data):
            data[found.offset - at] = found.byte
        blocks.append(sha256(data).hexdigest())
    return _vouched(found, told) if joined(tuple(blocks)) == region.digest else found


def _vouched(found: FlippedBit, by: str) -> FlippedBit:
    return FlippedBit(found.storage, found.offset, found.bit, found.byte, found.chance, by)


# ---- checksums of the whole file


def _by_promise(found: list[FlippedBit], source: Source) -> list[FlippedBit]:
    promise = promise_of(source)
    if promise is None or promise.algorithm != "sha256" or len(promise.digits) != sha256().digest_size * 2:
        return found
    digest = sha256()
    for at in range(0, source.size, _CHUNK):
        data = bytearray(source.read(at, min(_CHUNK, source.size - at)))
        for each in found:
            if at <= each.offset < at + len(data):
                data[each.offset - at] = each.byte
        digest.update(data)
    return [_vouched(each, promise.by) for each in found] if digest.hexdigest() == promise.digits else found
