"""The records of a rewritten archive: cut down, put together anew, inflated, and never given a checksum they lack."""

import dataclasses
import zlib

import pytest
import torch

from ckptdoctor.checkpoint import FileSource, Storage
from ckptdoctor.errors import DamagedError, RefusedError
from ckptdoctor.formats.torch.patch.storage_plans import StoragePlan
from ckptdoctor.formats.torch.zip.directory import read_directory
from ckptdoctor.formats.torch.zip.writer import copied, remade
from ckptdoctor.writing import Copy, Generated
from tests.formats.torch.zip.forge import assembled, part, parts_of, saved

DATA = bytes(range(256)) * 40
SIZE = len(DATA)


@pytest.fixture
def opened(tmp_path):
    """Opens an archive whose storage 0 holds DATA, after its parts were changed."""
    sources = []

    def prepare(**changes):
        parts = parts_of(saved([torch.frombuffer(bytearray(DATA), dtype=torch.uint8)]))
        for name, value in changes.items():
            setattr(part(parts, "data/0"), name, value)
        (tmp_path / "file.pt").write_bytes(assembled(parts))
        sources.append(FileSource(tmp_path / "file.pt"))
        return sources[-1], read_directory(sources[-1])

    yield prepare
    for source in sources:
        source.close()


def plan_of(key="0", nbytes=SIZE, pieces=None, generate=None):
    old = Storage("0", len(DATA), None, "cpu", None)
    sources = ("0",) if generate is not None else ()
    return StoragePlan(key=key, nbytes=nbytes, pieces=pieces, old=old, generate=generate, sources=sources)


def bytes_of(item, source):
    parts = []
    for segment in item.data:
        if isinstance(segment, Copy):
            parts.append(source.read(segment.offset, segment.length))
        else:
            parts += segment.chunks()
    return b"".join(parts)


@pytest.mark.parametrize("pieces", [None, ((0, len(DATA)),)])
def test_untouched_storage(pieces, opened):
    """A storage that stays whole is one range of the original, with the original's checksum, under its new number."""
    source, directory = opened()
    item = remade(source, directory, plan_of("7", pieces=pieces))
    assert item.name == "archive/data/7"
    assert item.crc == zlib.crc32(DATA)
    assert item.data == (Copy(directory.find("data/0").data_offset, len(DATA)),)


def test_pieces(opened):
    """A storage put together from pieces copies just these, and has a checksum of its own."""
    source, directory = opened()
    item = remade(source, directory, plan_of(nbytes=110, pieces=((300, 100), (10, 10))))
    wanted = DATA[300:400] + DATA[10:20]
    assert bytes_of(item, source) == wanted
    assert (item.size, item.summed()) == (110, zlib.crc32(wanted))
    assert all(isinstance(segment, Copy) for segment in item.data)


def test_generated(opened):
    """A storage made anew reads the old one, can be made twice, and outlives the source it was planned with."""

    def made(read):
        yield from (read("0", 5, 2), read("0", 0, 2))

    with FileSource(opened()[0].path) as source:
        directory = read_directory(source)
        item = remade(source, directory, plan_of(nbytes=4, generate=made))
    (segment,) = item.data
    assert isinstance(segment, Generated)
    assert [b"".join(segment.chunks()) for _ in range(2)] == [b"\5\6\0\1"] * 2
    assert (item.size, item.summed()) == (4, zlib.crc32(b"\5\6\0\1"))


def test_no_checksum_is_invented(opened):
    """Where the original has no checksum, a changed storage gets none either."""
    source, directory = opened(central={"crc": 0}, footer=b"PK\7\x08" + bytes(4) + len(DATA).to_bytes(4, "little") * 2)
    assert directory.repairable
    item = remade(source, directory, plan_of(nbytes=10, pieces=((0, 10),)))
    assert (item.crc, item.summed) == (0, None)


def test_damaged_storage_is_not_cut(opened):
    """A storage that does not match its checksum is copied whole with it, but never cut."""
    source, directory = opened(central={"crc": 5})
    assert remade(source, directory, plan_of()).crc == 5
    with pytest.raises(RefusedError, match="does not match its checksum"):
        remade(source, directory, plan_of(nbytes=10, pieces=((0, 10),)))


def test_deflated(opened):
    """A compressed storage is inflated with its checksum carried over; cutting it is refused."""
    source, directory = opened(method=8)
    item = remade(source, directory, plan_of())
    assert bytes_of(item, source) == DATA
    assert (item.size, item.crc) == (len(DATA), zlib.crc32(DATA))
    with pytest.raises(RefusedError, match="writes it uncompressed"):
        remade(source, directory, plan_of(nbytes=10, pieces=((0, 10),)))


def test_deflated_and_damaged(opened):
    """A compressed record that does not inflate to what it declares is found out before anything is written."""
    source, directory = opened(method=8, central={"size": 7})
    with pytest.raises(DamagedError):
        copied(source, directory.find("data/0"))


def test_no_record(opened):
    """A storage without a record cannot be written."""
    source, directory = opened()
    plan = dataclasses.replace(plan_of().old, key="5")
    with pytest.raises(RefusedError, match="no record"):
        remade(source, directory, StoragePlan(key="0", nbytes=1, pieces=None, old=plan, generate=None))
