"""Cuts files off and flips their bytes: whatever comes of it is a checkpoint or an error of this package."""

from __future__ import annotations

import random
from pathlib import Path

import ckptdoctor
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.facts.integrity import examine_integrity
from ckptdoctor.formats import opened, read

# a cut or a flip at each byte of files up to this size, and at this many places of longer ones
PLACES = 400


def endure(data: bytes, folder: Path) -> None:
    """Read and load the file cut at every offset, and with each byte changed. Raises what is no CkptDoctorError."""
    chosen = random.Random(len(data))
    places = range(len(data)) if len(data) <= PLACES else sorted(chosen.sample(range(len(data)), PLACES))
    for place in places:
        attempt(data[:place], folder)
        changed = bytearray(data)
        changed[place] = chosen.choice([changed[place] ^ (1 << chosen.randrange(8)), 0, 255, chosen.randrange(256)])
        attempt(bytes(changed), folder)


def attempt(data: bytes, folder: Path) -> bool:
    """Whether the file can be read and loaded."""
    path = folder / "mangled"
    path.unlink(missing_ok=True)  # a file that is written over waits for the disk
    path.write_bytes(data)
    try:
        with opened(path) as (source, container):
            examine_integrity(read(source, container), source)
        ckptdoctor.load(path)
    except CkptDoctorError:
        return False
    return True
