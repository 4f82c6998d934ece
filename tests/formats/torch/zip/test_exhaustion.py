"""Archives built to exhaust their reader: each ends in a process of its own, within seconds and bounded memory."""

import struct
import subprocess
import sys
import zlib
from functools import cache

import pytest
import torch

from tests.commands import PATIENCE
from tests.formats.torch.zip.forge import Part, assembled, part, parts_of, saved

SCRIPT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from ckptdoctor.checkpoint import FileSource
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor import formats
with FileSource(sys.argv[1]) as source:
    container = formats.examine(source)
    notes = list(container.notes)
    if container.readable:
        try:
            notes += formats.read(source, container).notes
        except CkptDoctorError as error:
            print(type(error).__name__, error.message)
for note in notes:
    print(note.kind.value, note.message)
print("end")
"""


@cache
def bomb(size):
    """A raw deflate stream of this many zero bytes, and their CRC: one piece over and over."""
    squeezer, zeros, crc = zlib.compressobj(1, zlib.DEFLATED, -15), bytes(1 << 20), 0
    piece = squeezer.compress(zeros) + squeezer.flush(zlib.Z_FULL_FLUSH)  # what follows does not depend on it
    for _ in range(size >> 20):
        crc = zlib.crc32(zeros, crc)
    return piece * (size >> 20) + squeezer.flush(), crc


def with_bomb(ending, size):
    """A torch archive one record of which inflates to ``size`` bytes."""
    parts = parts_of(saved([1]))
    data, crc = bomb(size)
    one = part(parts, ending)
    one.data = data
    one.local = {"method": 8, "size": 0}
    one.central = {"method": 8, "size": size, "crc": crc}
    one.footer = struct.pack("<4sIII", b"PK\7\x08", crc, len(data), size)
    return assembled(parts)


def long_directory(names):
    """An archive of just a directory, with more entries than any checkpoint has."""
    entry = struct.Struct("<4sHHHHHHIIIHHHHHII")
    entries = b"".join(entry.pack(b"PK\1\2", *[0] * 9, len(name), *[0] * 6) + name for name in names)
    local = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", *[0] * 8, len(names[0]), 0) + names[0]
    count, offset = len(names), len(local)
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 0, 45, 0, 0, count, count, len(entries), offset)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, offset + len(entries), 1)
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(entries), offset, 0)
    return local + entries + end64 + locator + end


def of_many_kinds(count):
    """An archive of so many tensors no two of which are alike: each has another stride."""
    return saved({f"a{step}": torch.zeros(1).as_strided((1,), (step,)) for step in range(count)})


ATTACKS = {
    "tensors of many kinds": (lambda: of_many_kinds(100_000), ""),
    "serialization id of a gigabyte": (lambda: with_bomb("serialization_id", 1 << 30), ""),
    "pickle of a gigabyte": (lambda: with_bomb("data.pkl", 1 << 30), "HostileError"),
    "pickle of 100 MB of zeros": (lambda: with_bomb("data.pkl", 100 << 20), "DamagedError"),
    "version of a gigabyte": (lambda: with_bomb("/version", 1 << 30), "zip-unusual"),
    "tens of thousands of records": (
        lambda: long_directory([b"a/data.pkl", *(b"a/%d" % index for index in range(49_999))]),
        "zip-damaged",
    ),
    "half a million records": (
        lambda: long_directory([b"a/data.pkl", *(b"a/%d" % index for index in range(499_999))]),
        "zip-damaged",
    ),
    "a million records": (lambda: long_directory([b"a/data.pkl"] * 1_000_000), "more than any has"),
    "records of one name": (lambda: long_directory([b"a/data.pkl"] * 60_000), "60000 records are called a/data.pkl"),
    "nothing but end records": (lambda: saved([1]) + b"PK\5\6" * 10_000 + bytes(18), "zip-damaged"),
    "many unfinished records": (
        lambda: assembled([Part(b"a/data.pkl", b"N."), *[Part(b"a/x", b"PK\7\x08" * 99)] * 9999])[: -9_000_000 // 9],
        "truncated",
    ),
}


SLOW = ("half a million records", "tensors of many kinds")


@pytest.mark.parametrize(
    "attack", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in ATTACKS]
)
def test_ends_in_time(attack, tmp_path):
    """The archive is reported, or read as far as is sensible, under a memory and a time limit."""
    make, said = ATTACKS[attack]
    (tmp_path / "hostile.pt").write_bytes(make())
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "hostile.pt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stderr == ""
    assert done.stdout.endswith("end\n")
    assert said in done.stdout
