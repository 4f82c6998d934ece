"""The records of a rewritten archive: cut down, put together anew, inflated, and never given a checksum they lack."""

import io
import zipfile
import zlib

import pytest
import torch

from ckptdoctor.edits import Compact, Drop, MakeContiguous
from ckptdoctor.errors import RefusedError, UnprovenError
from ckptdoctor.writing import Copy, Generated
from tests.formats.torch.zip.forge import assembled, deflated, part, parts_of, saved
from tests.formats.torch.zip.rewriting import recipe_of, rewritten

DATA = bytes(range(256)) * 40
LENGTH = len(DATA).to_bytes(4, "little")
CUT = Compact(("0",))


def whole():
    """A tensor of DATA."""
    return torch.frombuffer(bytearray(DATA), dtype=torch.uint8)


def views():
    """Two tensors that show parts of DATA."""
    base = whole()
    return [base[10:20], base[300:400]]


@pytest.fixture
def archive(tmp_path):
    """Writes an archive of these contents, after the record of storage 0 was changed."""

    def write(contents, **changes):
        parts = parts_of(saved(contents))
        for name, value in changes.items():
            setattr(part(parts, "data/0"), name, value)
        (tmp_path / "file.pt").write_bytes(assembled(parts))
        return tmp_path / "file.pt"

    return write


def record(data, name="data/0"):
    """The bytes and the checksum of a record of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        (info,) = [each for each in opened.infolist() if each.filename.endswith(name)]
        return opened.read(info), info.CRC


def test_untouched_storage(archive):
    """A storage that stays whole is a range of the original, with the original's checksum, under its new number."""
    path = archive([torch.ones(3), whole()])
    original = path.read_bytes()
    recipe = recipe_of(path, Drop(((0,),)))
    start = original.index(DATA)
    copied = [each for each in recipe.segments if isinstance(each, Copy)]
    assert any(each.offset <= start and start + len(DATA) <= each.offset + each.length for each in copied)
    assert record(rewritten(path, Drop(((0,),)))) == (DATA, zlib.crc32(DATA))


def test_pieces(archive):
    """A storage put together from pieces copies just these, and has a checksum of its own."""
    path = archive(views())
    start = path.read_bytes().index(DATA)
    wanted = DATA[10:20] + DATA[300:400]
    assert record(rewritten(path, CUT)) == (wanted, zlib.crc32(wanted))
    assert {Copy(start + 10, 10), Copy(start + 300, 100)} <= set(recipe_of(path, CUT).segments)


def test_generated(archive):
    """A storage made anew reads the old one, can be made twice, and outlives the source it was planned with."""
    turned = whole().view(40, 256).t()
    path = archive([turned])
    edit = MakeContiguous(((0,),))
    made = [each for each in recipe_of(path, edit).segments if isinstance(each, Generated)]
    (segment,) = [each for each in made if each.length == len(DATA)]
    wanted = bytes(turned.flatten().tolist())
    assert [b"".join(segment.chunks()) for _ in range(2)] == [wanted] * 2
    assert record(rewritten(path, edit)) == (wanted, zlib.crc32(wanted))


def test_no_checksum_is_invented(archive):
    """Where the original has no checksum, a changed storage gets none either."""
    parts = parts_of(saved(views()))
    for each in parts:
        length = len(each.data).to_bytes(4, "little")
        each.central, each.footer = {"crc": 0}, b"PK\7\x08" + bytes(4) + length * 2 if each.data else None
    path = archive(views())
    path.write_bytes(assembled(parts))
    central = rewritten(path, CUT).rindex(b"/data/0") - len("archive") - 46
    assert rewritten(path, CUT)[central + 16 : central + 20] == bytes(4)


def test_damaged_storage_is_not_cut(archive):
    """A storage that does not match its checksum is copied whole with it, but never cut."""
    path = archive(views(), central={"crc": 5}, footer=b"PK\7\x08\5\0\0\0" + LENGTH * 2)
    copy = rewritten(path)
    assert DATA in copy
    central = copy.rindex(b"/data/0") - len("archive") - 46
    assert copy[central + 16 : central + 20] == b"\5\0\0\0"
    with pytest.raises(RefusedError, match="does not match its checksum"):
        rewritten(path, CUT)


def test_deflated(archive):
    """A compressed storage is inflated with its checksum carried over."""
    path = archive(views(), method=8)
    copy = rewritten(path)
    assert DATA in copy
    assert record(copy) == (DATA, zlib.crc32(DATA))


def test_a_deflated_storage_is_cut(archive):
    """It is inflated for that, and the same bytes are kept of it as of one that is not compressed."""
    wanted = DATA[10:20] + DATA[300:400]
    assert record(rewritten(archive(views(), method=8), CUT)) == (wanted, zlib.crc32(wanted))


@pytest.mark.parametrize("times", [1, 150], ids=["in memory", "through a file"])
def test_a_deflated_storage_is_put_in_another_order(archive, times):
    """It is inflated for that, however large it is."""
    turned = torch.frombuffer(bytearray(DATA * times), dtype=torch.uint8).view(-1, 256).t()
    wanted = bytes(turned.flatten().tolist())
    path = archive([turned], method=8)
    assert record(rewritten(path, MakeContiguous(((0,),)))) == (wanted, zlib.crc32(wanted))


def test_a_damaged_deflated_storage_is_not_cut(archive):
    """Its checksum would be another afterwards."""
    footer = b"PK\7\x08\5\0\0\0" + len(deflated(DATA)).to_bytes(4, "little") + LENGTH
    with pytest.raises(RefusedError, match="does not match its checksum"):
        rewritten(archive(views(), method=8, central={"crc": 5}, footer=footer), CUT)


def test_deflated_and_damaged(archive):
    """A compressed record that does not inflate to what it declares is found out before anything is written."""
    with pytest.raises(UnprovenError, match="has another size"):
        rewritten(archive(views(), method=8, central={"size": 7}))


def test_no_record(archive):
    """A storage without a record cannot be written."""
    with pytest.raises(RefusedError, match="has no record"):
        rewritten(archive(views(), name=b"archive/data/5"))
