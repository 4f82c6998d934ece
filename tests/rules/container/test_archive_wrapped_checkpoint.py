"""C102: the refusals that are quoted are torch's own, and the repair is named after the packed file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest
import torch

from ckptdoctor.checkpoint import Container, Note, NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.formats.suffixes import unwrapped_path
from tests.rules.examined import found, safetensors_error, torch_error


def _zip(name):
    def pack(data):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            archive.writestr(name, data)
        return made.getvalue()

    return pack


def _tar(data):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo("m.pt")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def _zstd(data):
    import zstandard

    return zstandard.compress(data)


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, bz2.compress, lzma.compress, _zstd, _zip("m.pth"), _zip("x/m.pth"), _tar],
    ids=["gzip", "bzip2", "xz", "zstd", "zip", "folder-in-zip", "tar"],
)
@pytest.mark.filterwarnings("ignore")
def test_what_torch_says_is_quoted(pack, tmp_path):
    """With weights_only or without."""
    torch.save({"w": torch.ones(3)}, tmp_path / "m.pt")
    path = tmp_path / "packed.pt"
    path.write_bytes(pack((tmp_path / "m.pt").read_bytes()))
    (finding,) = found(path, "C102")
    told = torch_error(path) + torch_error(path, weights_only=False)
    assert finding.severity is Severity.ERROR and finding.torch_says
    assert all(line in told for line in finding.torch_says)


def test_what_safetensors_says_is_quoted(tmp_path):
    """Where the name calls for it."""
    torch.save({"w": torch.ones(3)}, tmp_path / "m.pt")
    path = tmp_path / "packed.safetensors"
    path.write_bytes(gzip.compress((tmp_path / "m.pt").read_bytes()))
    (finding,) = found(path, "C102")
    assert finding.torch_says[0] in safetensors_error(path)


@pytest.mark.parametrize(
    ("path", "member", "format_", "expected"),
    [
        ("d/m.pt.gz", None, "torch zip", "d/m.pt"),
        ("m.gz", None, "torch zip", "m.pt"),
        ("m.safetensors.gz", None, "safetensors", "m.safetensors"),
        ("m.pt.gz", None, "safetensors", "m.safetensors"),
        ("m.safetensors.zip", "x.bin", "torch legacy", "m.pt"),
        ("m.tar.gz", "../../etc/passwd", "torch zip", "m.pt"),
        ("m.v1.zip", "m.pt", "torch zip", "m.v1.pt"),
        ("M.PTH.GZ", None, "torch zip", "M.PTH"),
        ("d/w.zip/run/e9.pth", "run/e9.pth", "torch zip", "d/e9.pth"),
        ("d/w.zip/e9.pt.gz", "e9.pt.gz", "torch zip", "d/e9.pt"),
        ("m.pt", "m.pt", "torch zip", "m.pt"),
    ],
)
def test_the_inside_is_named_after_the_packed_file(path, member, format_, expected):
    """Never after what the file itself says, unless a person has named that."""
    note = Note(NoteKind.ARCHIVE_WRAPPED, "a torch zip is packed in a gzip file", member)
    assert unwrapped_path(Container(path, 1, format_, b"", True, notes=(note,))) == expected
    assert unwrapped_path(Container(path, 1, format_, b"", True)) is None
