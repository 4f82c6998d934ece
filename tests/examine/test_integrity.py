"""The deep examination, over real bytes on disk."""

from __future__ import annotations

import os
import random
import tracemalloc
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint import Checkpoint, Extent, FileSource, FolderSource, NoteKind, Storage, source
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.errors import TruncatedError
from ckptdoctor.examine.integrity import examine_integrity
from ckptdoctor.values.storage_damage import CHUNK

F32 = BY_NAME["float32"]
MIB = 1 << 20
PAGE = 4096
HOLE = 64 << 10


def noise(length, seed=0):
    return random.Random(seed).randbytes(length).replace(b"\0", b"\1")


def examine(path, data, *storages, listener=None):
    path.write_bytes(data)
    checkpoint = Checkpoint(str(path), "torch zip", len(data), None, (), storages, ())
    with FileSource(path) as file:
        return examine_integrity(checkpoint, file, Work(listener=listener))


def deflated(plain):
    squeeze = zlib.compressobj(wbits=-15)
    return squeeze.compress(plain) + squeeze.flush()


def on(data, key="0", start=0, length=None, crc=True, dtype=F32, compressed=False):
    length = len(data) - start if length is None else length
    stored = zlib.crc32(data[start : start + length]) if crc else None
    return Storage(key, length, dtype, "cpu", Extent("f", start, length), stored, compressed)


def test_whole_bytes_are_whole(tmp_path):
    """A fitting checksum says nothing, and every byte is read once."""
    data = noise(3 * MIB)
    integrity = examine(tmp_path / "f", data, on(data, "0", 0, MIB), on(data, "1", MIB))
    assert (integrity.damage, integrity.read, integrity.without_checksum) == ((), 3 * MIB, 0)


def test_one_flipped_bit_is_found(tmp_path):
    """The checksum of the storage with the bit does not fit, that of its neighbour does."""
    data = bytearray(noise(2 * CHUNK + 100))
    storages = on(bytes(data), "0", 0, 1000), on(bytes(data), "1", 1000)
    data[2 * CHUNK] ^= 4
    integrity = examine(tmp_path / "f", bytes(data), *storages)
    assert [each.storage.key for each in integrity.damage] == ["1"]
    assert [note.kind for note in integrity.notes] == [NoteKind.CRC_MISMATCH]


def test_storages_without_checksum_are_counted(tmp_path):
    """They are looked at for holes where they hold floats, and left alone where they do not."""
    data = noise(MIB)
    integers = on(data, "1", 4096, 4096, crc=False, dtype=BY_NAME["int64"])
    integrity = examine(tmp_path / "f", data, on(data, "0", 0, 4096, crc=False), integers)
    assert (integrity.without_checksum, integrity.read) == (2, 4096)


def test_compressed_records_are_checked_as_they_were(tmp_path):
    """The checksum is that of the bytes before compression; broken compression does not fit."""
    plain = bytes(10 * MIB) + noise(1000)
    data = deflated(plain)
    good = Storage("0", len(plain), F32, "cpu", Extent("f", 0, len(data)), zlib.crc32(plain), True)
    assert examine(tmp_path / "f", data, good).damage == ()
    broken = data[:-500] + bytes([data[-500] ^ 1]) + data[-499:]
    assert len(examine(tmp_path / "f", broken, good).damage) == 1


def test_a_bomb_is_not_followed_to_its_end(tmp_path):
    """A compressed record that is longer than its storage is damaged, however its checksum."""
    plain = bytes(40 * MIB)
    data = deflated(plain)
    short = Storage("0", 1000, F32, "cpu", Extent("f", 0, len(data)), zlib.crc32(plain), True)
    assert len(examine(tmp_path / "f", data, short).damage) == 1


def test_a_hole_breaks_the_checksum_and_is_located(tmp_path):
    """A zeroed run of pages is told as such, with its place."""
    data = noise(MIB)
    storage = on(data, "0", 100)
    data = data[: 20 * PAGE] + bytes(40 * PAGE) + data[60 * PAGE :]
    (damage,) = examine(tmp_path / "f", data, storage).damage
    assert damage.computed is not None
    (hole,) = damage.holes
    assert (hole.offset, hole.length) == (20 * PAGE, 40 * PAGE)


def test_zeros_under_a_fitting_checksum_were_meant(tmp_path):
    """Zeros that were saved are no hole."""
    data = noise(64 * PAGE) + bytes(64 * PAGE) + noise(64 * PAGE)
    assert examine(tmp_path / "f", data, on(data)).damage == ()


def test_without_a_checksum_a_hole_is_still_seen(tmp_path):
    """safetensors and legacy files have no checksums."""
    data = noise(64 * PAGE) + bytes(64 * PAGE) + noise(64 * PAGE)
    integrity = examine(tmp_path / "f", data, on(data, crc=False))
    (damage,) = integrity.damage
    assert damage.computed is None
    assert [note.kind for note in integrity.notes] == [NoteKind.ZERO_FILLED]


@pytest.mark.parametrize("crc", [False, True])
def test_files_of_a_folder_may_be_closed_meanwhile(tmp_path, monkeypatch, crc):
    """A folder keeps few files open: what one thread reads is still right when the other has made it close the file."""
    monkeypatch.setattr(source, "_MOST_OPEN", 1)
    storages = []
    for name in "abcdefgh":
        data = bytearray(noise(24 * MIB // 8, ord(name)))
        place = Extent(str(tmp_path / name), 0, len(data))
        storages.append(Storage(name, len(data), F32, "cpu", place, zlib.crc32(data) if crc else None))
        if name == "c":
            data[MIB : 2 * MIB] = bytes(MIB)
        (tmp_path / name).write_bytes(data)
    checkpoint = Checkpoint(str(tmp_path), "folder", 0, None, (), tuple(storages), ())
    folder = FolderSource(tmp_path)
    integrity = examine_integrity(checkpoint, folder)
    folder.close()
    (damage,) = integrity.damage
    assert damage.storage.key == "c" and integrity.read == 24 * MIB // 8 * 8


@pytest.mark.parametrize(
    "data",
    [
        bytes(300 * PAGE),
        noise(8 * PAGE) + bytes(HOLE - 1) + noise(8 * PAGE),
        noise(8 * PAGE + 100) + bytes(HOLE + PAGE) + noise(8 * PAGE + 1000),
    ],
    ids=["all zero", "too short", "not at a page"],
)
def test_zeros_that_are_no_hole(tmp_path, data):
    """A storage of zeros, a short run, and rows of zeros that begin anywhere."""
    assert examine(tmp_path / "f", data, on(data, crc=False)).damage == ()


def test_progress_counts_the_bytes(tmp_path):
    """It grows to the number of bytes read."""
    data = noise(CHUNK + 10)
    seen = []
    examine(tmp_path / "f", data, on(data), listener=lambda progress: seen.append(progress.done))
    assert seen == [CHUNK, CHUNK + 10]


def test_records_outside_the_file_are_left_to_other_rules(tmp_path):
    """A storage whose bytes are not there is not read."""
    data = noise(1000)
    outside = Storage("0", 5000, F32, "cpu", Extent("f", 500, 5000), 1)
    missing = Storage("1", 5000, F32, "cpu", None, 1)
    assert examine(tmp_path / "f", data, outside, missing).damage == ()


def test_a_file_that_shrinks_is_told(tmp_path):
    """The source says where it ended."""
    data = noise(2 * CHUNK)
    path = tmp_path / "f"
    path.write_bytes(data)
    checkpoint = Checkpoint(str(path), "torch zip", len(data), None, (), (on(data),), ())
    with FileSource(path) as source:
        os.truncate(path, CHUNK)
        with pytest.raises(TruncatedError):
            examine_integrity(checkpoint, source)


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Two chunks and a little more, however large the storage."""
    data = noise(MIB) * 48
    path = tmp_path / "f"
    path.write_bytes(data)
    checkpoint = Checkpoint(str(path), "torch zip", len(data), None, (), (on(data),), ())
    tracemalloc.start()
    try:
        with FileSource(path) as source:
            examine_integrity(checkpoint, source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * CHUNK


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 60), st.integers(0, 3)), min_size=1, max_size=6),
    st.integers(0, 2 * PAGE),
)
def test_looking_at_some_pages_finds_every_hole(tmp_path_factory, pieces, start):
    """Of a storage without checksum not every byte is read; the holes are those that all of them tell."""
    data = b"".join([bytes(pages * PAGE) if zero else noise(pages * PAGE + extra) for zero, pages, extra in pieces])
    start = min(start, len(data) - 1)
    path = tmp_path_factory.mktemp("holes") / "f"
    some = examine(path, data, on(data, start=start, crc=False))
    every = examine(path, data, replace(on(data, start=start), crc32=-1))
    assert [each for damage in some.damage for each in damage.holes] == [
        each for damage in every.damage for each in damage.holes
    ]
    assert some.read == every.read == len(data) - start
