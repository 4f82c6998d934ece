"""Records are read as they are stored or deflated, never more of them than was declared."""

import tracemalloc

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource
from ckptdoctor.errors import DamagedError, HostileError, TruncatedError
from tests.formats.torch.zip.forge import assembled, deflated, part, parts_of, saved
from tests.formats.torch.zip.rewriting import rewritten

CONTENTS = {"w": torch.ones(2), "text": "x" * 5000}
PICKLE = part(parts_of(saved(CONTENTS)), "data.pkl").data
MIB = 1 << 20


@pytest.fixture
def opened(tmp_path):
    """Opens an archive whose pickle was changed, and gives the source, and what examine says of it."""
    sources = []

    def prepare(**changes):
        parts = parts_of(saved(CONTENTS))
        for name, value in changes.items():
            setattr(part(parts, "data.pkl"), name, value)
        (tmp_path / "file.pt").write_bytes(assembled(parts))
        sources.append(FileSource(tmp_path / "file.pt"))
        return sources[-1], formats.examine(sources[-1])

    yield prepare
    for source in sources:
        source.close()


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB])
@pytest.mark.parametrize("method", [0, 8])
def test_whole_data(size, method, tmp_path):
    """The data of a record comes out whole in a copy, whatever its length."""
    contents = torch.arange(size).to(torch.uint8)
    parts = parts_of(saved([contents]))
    part(parts, "data/0").method = method
    (tmp_path / "file.pt").write_bytes(assembled(parts))
    (tmp_path / "new.pt").write_bytes(rewritten(tmp_path / "file.pt"))
    assert torch.equal(torch.load(tmp_path / "new.pt")[0], contents)


def test_a_deflated_pickle_is_read(opened):
    """It says the same as a stored one."""
    (tensor,) = formats.read(*opened(method=8)).tensors
    assert (tensor.path, tensor.shape) == (("w",), (2,))


@pytest.mark.parametrize("change", [-1, 1, 1000])
def test_another_size_than_declared(change, opened):
    """Data that inflates to more or less than was declared is an error."""
    with pytest.raises(DamagedError, match="does not inflate to"):
        formats.read(*opened(method=8, central={"size": len(PICKLE) + change}))


@pytest.mark.parametrize(("size", "text"), [(1 << 30, r"at most 134,217,728"), (64 << 20, "is impossible")])
def test_bomb(size, text, opened):
    """A record that would inflate to a gigabyte, or more than any can, is refused before it is read."""
    source, container = opened(method=8, central={"size": size})
    before = source.bytes_read
    with pytest.raises(HostileError, match=text):
        formats.read(source, container)
    assert source.bytes_read == before


def test_bomb_that_lies_about_its_size(opened):
    """A record that inflates to far more than it declares is left after one byte too many."""
    source, container = opened(method=8, data=bytes(64 << 20), central={"size": 100})
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match="does not inflate to the 100 bytes"):
            formats.read(source, container)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def stream(data):
    """The changes that put a deflate stream of our own in the place of the pickle's."""
    return {"data": data, "local": {"method": 8}, "central": {"method": 8, "size": len(PICKLE)}}


def test_damaged_stream(opened):
    """A damaged deflate stream names the record and the byte."""
    with pytest.raises(DamagedError, match=r"archive/data\.pkl cannot be inflated near byte"):
        formats.read(*opened(**stream(bytes([7]) + deflated(PICKLE))))


def test_stream_cut_short(opened):
    """A deflate stream that ends early is an error, not an endless loop."""
    with pytest.raises(DamagedError, match="does not inflate to"):
        formats.read(*opened(**stream(deflated(PICKLE)[:-20])))


@pytest.mark.parametrize(
    ("method", "flags", "text"), [(0, 1, "encrypted"), (0, 0x40, "encrypted"), (12, 0, "method 12")]
)
def test_unreadable(method, flags, text, opened):
    """Encrypted records and unknown methods are refused by name."""
    with pytest.raises(DamagedError, match=text):
        formats.read(*opened(local={"method": method, "flags": flags}, central={"method": method, "flags": flags}))


def test_outside_the_file(opened):
    """A record that reaches past the end of the file is an error."""
    with pytest.raises(TruncatedError):
        formats.read(*opened(central={"compressed": 10**6, "size": 10**6}))
