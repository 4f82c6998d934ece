"""Reading single records: stored or deflated, never more than was declared."""

import pytest

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.errors import DamagedError, HostileError, TruncatedError
from ckptdoctor.formats.torch.zip.local_headers import CHUNK, chunks, read_record
from ckptdoctor.formats.torch.zip.records import Record
from tests.formats.torch.zip.forge import deflated


def record(stored: bytes, size: int, method: int = 8, flags: int = 0) -> Record:
    return Record("archive/data/0", method, flags, 0, size, len(stored), 0, 3, False)


@pytest.fixture
def source_of(tmp_path):
    opened = []

    def open_with(stored: bytes) -> FileSource:
        (tmp_path / "file").write_bytes(b"..." + stored + b"behind it")
        opened.append(FileSource(tmp_path / "file"))
        return opened[-1]

    yield open_with
    for source in opened:
        source.close()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
@pytest.mark.parametrize("method", [0, 8])
def test_whole_data(size, method, source_of):
    """The data of a record comes out whole, whatever its length."""
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    stored = deflated(data) if method else data
    pieces = list(chunks(source_of(stored), record(stored, size, method)))
    assert b"".join(pieces) == data
    assert all(len(piece) <= CHUNK + 1 for piece in pieces)


@pytest.mark.parametrize("change", [-1, 1, 1000])
def test_another_size_than_declared(change, source_of):
    """Data that inflates to more or less than was declared is an error."""
    stored = deflated(bytes(5000))
    with pytest.raises(DamagedError, match="does not inflate to"):
        read_record(source_of(stored), record(stored, 5000 + change), 1 << 20)


def test_bomb(source_of):
    """A record that would inflate to a gigabyte is refused before it is read."""
    stored = deflated(bytes(1 << 20))
    source = source_of(stored)
    with pytest.raises(HostileError, match="at most 1,000"):
        read_record(source, record(stored, 1 << 30), 1000)
    with pytest.raises(HostileError, match="is impossible"):
        read_record(source, record(stored, 1 << 30), 1 << 40)
    assert source.bytes_read == 0


def test_bomb_that_lies_about_its_size(source_of):
    """A record that inflates to far more than it declares is left after one byte too many."""
    stored = deflated(bytes(64 << 20))
    source = source_of(stored)
    done = 0
    with pytest.raises(DamagedError):
        for piece in chunks(source, record(stored, 100)):
            done += len(piece)
    assert done <= 100


def test_damaged_stream(source_of):
    """A damaged deflate stream names the record and the byte."""
    stored = bytes([7]) + deflated(bytes(100))
    with pytest.raises(DamagedError, match="archive/data/0 cannot be inflated near byte"):
        read_record(source_of(stored), record(stored, 100), 1000)


def test_stream_cut_short(source_of):
    """A deflate stream that ends early is an error, not an endless loop."""
    stored = deflated(bytes(range(256)) * 40)[:-20]
    with pytest.raises(DamagedError):
        read_record(source_of(stored), record(stored, 256 * 40), 1 << 20)


@pytest.mark.parametrize(
    ("method", "flags", "text"), [(0, 1, "encrypted"), (0, 0x40, "encrypted"), (12, 0, "method 12")]
)
def test_unreadable(method, flags, text, source_of):
    """Encrypted records and unknown methods are refused by name."""
    with pytest.raises(DamagedError, match=text):
        read_record(source_of(b"abc"), record(b"abc", 3, method, flags), 1000)


def test_outside_the_file(source_of):
    """A record that reaches past the end of the file is an error."""
    with pytest.raises(TruncatedError):
        read_record(source_of(b"abc"), record(bytes(1000), 1000, method=0), 1000)
