"""Cuts files off and flips their bytes: whatever comes of it is a checkpoint or an error of this package."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import ckptdoctor
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.examine.integrity import examine_integrity
from ckptdoctor.formats import opened, read

# a cut and a flip at each byte of files up to this size, and at so many places of longer ones
PLACES = pytest.mark.parametrize("places", [100, pytest.param(400, marks=pytest.mark.slow)])


def endure(data: bytes, folder: Path, places: int) -> None:
    """Read and load the file cut, and changed, at so many places. Raises what is no CkptDoctorError."""
    chosen = random.Random(len(data))
    for place in range(len(data)) if len(data) <= places else sorted(chosen.sample(range(len(data)), places)):
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
