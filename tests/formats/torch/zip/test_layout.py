"""The layout: byte for byte what torch.save writes."""

import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.formats.torch.zip.directory import read_directory
from ckptdoctor.formats.torch.zip.layout import Item, joined, lay_out, local_header
from ckptdoctor.writing import Copy, Generated, Literal
from tests.formats.torch.zip.forge import saved


def laid_out_again(path, alignment=64):
    """The segments for the same records, each one's data copied from where it lies."""
    with FileSource(path) as source:
        records = read_directory(source).records
    items = [Item(one.name, one.size, one.crc, (Copy(one.data_offset, one.size),)) for one in records]
    return lay_out(items, alignment)


def assert_identical(path, segments):
    """Writing the segments would give just the file at ``path``, every copied range where it was."""
    at = 0
    with FileSource(path) as source:
        for segment in segments:
            if isinstance(segment, Copy):
                assert segment.offset == at
            else:
                assert source.read(at, segment.length) == segment.data
            at += segment.length
        assert at == source.size


@pytest.mark.parametrize("count", [0, 1, 3, 70])
def test_identical_to_torch_save(count, tmp_path):
    """Records laid out again give the archive that torch.save wrote, byte for byte."""
    path = tmp_path / "file.pt"
    torch.save({f"key.{index}": torch.arange(index) for index in range(count)}, path)
    assert_identical(path, laid_out_again(path))


@pytest.mark.parametrize("alignment", [1, 8, 32, 256, 4096, 1 << 15])
def test_identical_for_every_alignment(alignment, tmp_path):
    """The same holds for every alignment that torch can be told."""
    from torch.utils.serialization import config

    path = tmp_path / "file.pt"
    with config.patch({"save.storage_alignment": alignment}):
        torch.save([torch.ones(5), torch.zeros(0), torch.ones(1000)], path)
    assert_identical(path, laid_out_again(path, alignment))


def test_identical_without_checksums(tmp_path):
    """The same holds for an archive without checksums."""
    torch.serialization.set_crc32_options(False)
    try:
        torch.save([torch.ones(5)], tmp_path / "file.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert_identical(tmp_path / "file.pt", laid_out_again(tmp_path / "file.pt"))


@pytest.mark.parametrize(
    "sizes", [[(1 << 32) - 2, 8], [(1 << 32) - 1, 8], [1 << 32, 0, 8], [3 << 30, 3 << 30, 5 << 30]]
)
def test_identical_beyond_4_gib(sizes, tmp_path):
    """The same holds beyond 4 GiB, where sizes and offsets move into zip64 fields; just below that, too."""
    path = tmp_path / "big.pt"
    with torch.serialization.skip_data():
        torch.save([torch.UntypedStorage(size) for size in sizes], path)
    assert_identical(path, laid_out_again(path))


@pytest.mark.slow
def test_identical_beyond_65535_records(tmp_path):
    """The same holds for more records than the plain end record can count."""
    path = tmp_path / "many.pt"
    empty = torch.UntypedStorage(0)
    writer = torch._C.PyTorchFileWriter(str(path), True, 64)
    for index in range(66_000):
        writer.write_record(f"data/{index}", empty, 0)
    writer.write_record("data.pkl", b"N.", 2)
    writer.write_end_of_file()
    assert_identical(path, laid_out_again(path))


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text("abc.é/", min_size=1, max_size=90), st.binary(max_size=300), max_size=8))
def test_identical_for_any_names_and_sizes(tmp_path_factory, records):
    """Any records under any names come out as torch's writer writes them."""
    path = tmp_path_factory.mktemp("any") / "file.pt"
    writer = torch._C.PyTorchFileWriter(str(path), True, 64)
    writer.write_record("data.pkl", b"N.", 2)
    for name, data in records.items():
        writer.write_record(f"x{name}x", data, len(data))
    writer.write_end_of_file()
    assert_identical(path, laid_out_again(path))


def test_offsets_that_torch_computes(tmp_path):
    """The padding of a header is what torch computes when it does not look (getRecordOffsetNoRead)."""
    path = tmp_path / "file.pt"
    path.write_bytes(saved([torch.ones(3)]))
    reader = torch._C.PyTorchFileReader(str(path))
    for at in (0, 1, 63, 64, (1 << 32) - 2, (1 << 32) - 1, 1 << 33):
        for size in (0, 5, (1 << 32) - 2, (1 << 32) - 1, 1 << 33):
            for alignment in (1, 64, 4096):
                computed = reader.get_record_offset_no_read(at, "data/12", size, alignment)
                assert at + len(local_header("archive/data/12", size, at, alignment)) == computed


def test_joined_literals():
    """Neighbouring literals become one, and what is empty goes."""
    made = Generated(2, lambda: iter([b"ab"]))
    segments = [Literal(b"a"), Literal(b""), Literal(b"b"), Copy(5, 0), Literal(b"c"), made, Copy(1, 2), Literal(b"")]
    assert list(joined(segments)) == [Literal(b"abc"), made, Copy(1, 2)]


def test_empty_record_has_no_descriptor():
    """A record without data has other flags and no descriptor."""
    (whole,) = lay_out([Item("archive/data/0", 0, 0, ())])
    assert b"PK\7\x08" not in whole.data
    assert struct.unpack_from("<H", whole.data, 6) == (0x0800,)
