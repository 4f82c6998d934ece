"""The zip directory as a whole: sound archives, archives built to keep their reader busy, and wild changes."""

import random
import struct

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource, NoteKind
from ckptdoctor.errors import CkptDoctorError, HostileError
from ckptdoctor.formats import open_checkpoint
from tests.formats.torch.zip.forge import (
    CONTENTS,
    Part,
    assembled,
    directory_of,
    kinds,
    noted,
    noticed,
    part,
    parts_of,
    saved,
)


def read_back(data, folder):
    """The contents of a file of these bytes."""
    path = folder / "read.pt"
    path.write_bytes(data)
    return open_checkpoint(path)


def test_torch_archive_has_no_notes(tmp_path):
    """What torch.save writes is read without a remark, and each record's data lies where the directory says."""
    data = saved(CONTENTS)
    assert noticed(data, tmp_path).notes == ()
    assert directory_of(data, tmp_path).repairable
    storages = {f"archive/data/{each.key}": each.extent for each in read_back(data, tmp_path).storages}
    values = {one.name.decode(): one.data for one in parts_of(data) if "/data/" in one.name.decode()}
    assert {name: data[at.offset : at.offset + at.length] for name, at in storages.items()} == values != {}


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_alignments(alignment, tmp_path):
    """Archives of every alignment that torch can be told are read without a remark."""
    from torch.utils.serialization import config

    with config.patch({"save.storage_alignment": alignment}):
        data = saved(CONTENTS)
    assert noticed(data, tmp_path).notes == ()
    assert all(each.extent.offset % alignment == 0 for each in read_back(data, tmp_path).storages)


def test_archive_name_of_a_path(tmp_path):
    """An archive saved to a path carries the file's stem as its folder, and is read without a remark."""
    torch.save(CONTENTS, tmp_path / "my.model.pt")
    checkpoint = open_checkpoint(tmp_path / "my.model.pt")
    assert (checkpoint.notes, [each.key for each in checkpoint.tensors]) == ((), list(CONTENTS))


def test_unicode_name(tmp_path):
    """A name outside ASCII is read as UTF-8."""
    parts = [Part(each.name.replace(b"archive", "modèle".encode()), each.data) for each in parts_of(saved([1]))]
    assert read_back(assembled(parts), tmp_path).tree.items == (1,)
    part(parts, "data.pkl").central = {"version": 99}
    noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_UNUSUAL, "version 9.9", "modèle/data.pkl")


def test_sparse_archive_beyond_4_gib(tmp_path):
    """Offsets and sizes beyond 4 GiB are read from the zip64 fields, with few and small reads."""
    path = tmp_path / "big.pt"
    with torch.serialization.skip_data():
        torch.save({"a": torch.UntypedStorage((1 << 32) + 8), "b": torch.UntypedStorage(16)}, path)
    with FileSource(path) as source:
        container = formats.examine(source)
        first, second = formats.read(source, container).storages
        assert source.bytes_read < 100_000
    assert first.nbytes == first.extent.length == (1 << 32) + 8
    assert second.extent.offset > 1 << 32
    assert kinds(container) == {NoteKind.CRC_NOT_COMPUTED}


def test_dense_archive_is_read_in_windows(tmp_path):
    """Thousands of small records cost far fewer reads than there are records."""
    path = tmp_path / "many.pt"
    torch.save([torch.zeros(4) for _ in range(3000)], path)

    class Counting(FileSource):
        reads = 0

        def read(self, offset, length):
            self.reads += 1
            return super().read(offset, length)

    with Counting(path) as source:
        assert len(formats.read(source, formats.examine(source)).storages) == 3000
        assert source.reads < 30


def test_checksums_not_computed(tmp_path):
    """An archive without checksums is said to be one, and is not called damaged."""
    torch.serialization.set_crc32_options(False)
    try:
        data = saved(CONTENTS)
    finally:
        torch.serialization.set_crc32_options(True)
    directory = directory_of(data, tmp_path)
    note = noted(directory, NoteKind.CRC_NOT_COMPUTED, "no checksums were computed")
    assert "set_crc32_options(False)" in note.message
    assert directory.repairable


class TestBusy:
    """Archives built to keep their reader busy end within a second or two."""

    def test_many_duplicates(self, tmp_path):
        """Thousands of shared names are a few notes."""
        parts = [
            Part(b"archive/data.pkl", b"N."),
            *(Part(b"archive/%d" % (index % 3000), b"") for index in range(9000)),
        ]
        directory = noticed(assembled(parts, count=9001, here=9001), tmp_path)
        assert len(directory.notes) < 20
        noted(directory, NoteKind.ZIP_AMBIGUOUS, "2,992 more names are shared")

    def test_too_many_records_with_duplicates(self, tmp_path):
        """More records than can be sorted as torch does, some of one name, are refused."""
        entry = central_entry(b"a/data.pkl", 0)
        data = b"PK\3\4" + bytes(26) + zip64_end(entry * 70_000, 70_000, 30)
        with pytest.raises(HostileError, match="70,000 records"):
            directory_of(data, tmp_path)

    def test_entries_at_the_end_of_the_file(self, tmp_path):
        """A hundred thousand entries that all lead to the last bytes of the file are looked at once each."""
        entries = b"".join(central_entry(b"a/%d" % index, 0x7FFFFFF0) for index in range(60_000))
        data = b"PK\3\4" + bytes(26) + zip64_end(entries + central_entry(b"a/data.pkl", 0), 60_001, 30)
        directory = noticed(data.replace(b"\xf0\xff\xff\x7f", (len(data) - 31).to_bytes(4, "little")), tmp_path)
        assert len(directory.notes) < 20

    def test_each_header_lies_in_its_own_way(self, tmp_path):
        """Thousands of different lies are counted, not told one by one."""
        parts = [Part(b"archive/data.pkl", b"N.")]
        parts += [Part(b"archive/%d" % index, b"", local={"name": b"archive/x%d" % index}) for index in range(2000)]
        directory = directory_of(assembled(parts), tmp_path)
        assert len(directory.notes) < 100
        assert not directory.repairable


def central_entry(name, offset):
    return struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", *[0] * 9, len(name), *[0] * 5, offset) + name


def zip64_end(directory, count, offset):
    """A directory of any number of entries at ``offset``, and its end records."""
    after = offset + len(directory)
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 0, 45, 0, 0, count, count, len(directory), offset)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, after, 1)
    short = min(count, 0xFFFF)
    return (
        directory
        + end64
        + locator
        + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, short, short, len(directory), offset, 0)
    )


def test_wild_changes_never_escape(tmp_path):
    """Whatever bytes change and wherever the file is cut: a directory with notes, or one of our own errors."""
    rng = random.Random(7)
    sound = [saved(CONTENTS), assembled(parts_of(saved(CONTENTS)))]
    path = tmp_path / "wild.pt"
    for _ in range(1500):
        data = bytearray(rng.choice(sound))
        for _ in range(rng.randrange(1, 5)):
            where = rng.randrange(len(data)) if rng.random() < 0.3 else rng.randrange(len(data) - 700, len(data))
            data[where] = rng.choice([0, 0xFF, data[where] ^ (1 << rng.randrange(8)), rng.randrange(256)])
        path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
        with FileSource(path) as source:
            try:
                container = formats.examine(source)
            except CkptDoctorError as error:
                assert error.message.endswith(".")
                continue
            try:
                checkpoint = formats.read(source, container)
            except CkptDoctorError:
                continue
            silent = not (container.notes or checkpoint.notes)
            assert all(each.extent.offset <= source.size for each in checkpoint.storages if silent)
