"""Checkpoints that were packed once more are opened inside, by the tools that pack them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib

import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor import formats
from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.checkpoint.progress import heard
from ckptdoctor.errors import NotACheckpointError, RefusedError, StoppedError, TruncatedError, WriteError
from ckptdoctor.examine.file import check
from ckptdoctor.formats.packed import scratch, unpacking

STATE = {"module.fc.weight": torch.arange(600.0).reshape(20, 30), "module.fc.bias": torch.zeros(20)}


def zipped(data, name, method=zipfile.ZIP_DEFLATED, **others):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for other, content in {name: data, **others}.items():
            archive.writestr(other, content)
    return made.getvalue()


def in_tar(data, name, mode="w"):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def zstd(data):
    import zstandard

    return zstandard.compress(data)


WAYS = {
    "m.pt.gz": lambda data: gzip.compress(data, mtime=0),
    "m.pt.bz2": lambda data: bz2.compress(data),
    "m.pt.xz": lambda data: lzma.compress(data),
    "m.pt.zst": zstd,
    "m.z": lambda data: zlib.compress(data),
    "m.lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "stored.zip": lambda data: zipped(data, "m.pt", zipfile.ZIP_STORED),
    "deflated.zip": lambda data: zipped(data, "run 1/m.pt"),
    "with_others.zip": lambda data: zipped(data, "m.pt", **{"README.md": b"hi", "__MACOSX/._m.pt": b"x"}),
    "m.tar": lambda data: in_tar(data, "./m.pt"),
    "m.tgz": lambda data: in_tar(data, "run/m.pt", "w:gz"),
    "m.tar.xz": lambda data: in_tar(data, "m.pt", "w:xz"),
    "nested.zip": lambda data: zipped(gzip.compress(data, mtime=0), "m.pt.gz"),
    "without_suffix.zip": lambda data: zipped(data, "checkpoint"),
    "two_streams.gz": lambda data: (
        gzip.compress(data[:1000], mtime=0) + gzip.compress(data[1000:], mtime=0) + bytes(100)
    ),
    "two_streams.bz2": lambda data: bz2.compress(data[:1000]) + bz2.compress(data[1000:]),
    "followed.gz": lambda data: gzip.compress(data, mtime=0) + b"something else",
}


def saved(folder, container="torch zip"):
    path = folder / "inside"
    if container == "safetensors":
        save_file(STATE, path, {"format": "pt"})
    else:
        torch.save(STATE, path, _use_new_zipfile_serialization=container == "torch zip")
    data = path.read_bytes()
    path.unlink()
    return data


@pytest.fixture(autouse=True)
def clean():
    yield
    scratch.remove()


@pytest.mark.parametrize("container", ["torch zip", "torch legacy", "safetensors"])
@pytest.mark.parametrize("name", WAYS)
def test_the_inside_is_read_loaded_and_repaired(name, container, tmp_path):
    """Whatever it is packed in; the findings are about the inside and the packing, and the repair unpacks it."""
    path = tmp_path / name
    path.write_bytes(WAYS[name](saved(tmp_path, container)))
    report = ckptdoctor.check(path)
    codes = [finding.code for finding in report.findings if finding.code != "C105"]
    assert report.error is None and sorted(codes) == ["C102", "N401"]
    assert report.checkpoint.format == container and report.path == str(path)
    assert report.checkpoint.path == report.container.path == str(path)
    loaded = ckptdoctor.load(path)
    assert all(torch.equal(loaded[key], value) for key, value in STATE.items())
    repaired = ckptdoctor.fix(path, select=["C102"])
    expected = path.name.split(".")[0] + (".safetensors" if container == "safetensors" else ".pt")
    assert repaired.output == str(tmp_path / expected)
    assert (tmp_path / expected).read_bytes() == saved(tmp_path, container)
    both = ckptdoctor.fix(path, tmp_path / "both.x")
    assert not both.left and sorted(ckptdoctor.load(tmp_path / "both.x")) == ["fc.bias", "fc.weight"]


@pytest.mark.parametrize("tool", ["gzip", "bzip2", "xz", "zstd"])
def test_what_the_tools_themselves_pack_is_read(tool, tmp_path):
    """Files of the command line tools, where this machine has them; Python's own libraries are tested above."""
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool} here")
    torch.save(STATE, tmp_path / "m.pt")
    subprocess.run([tool, "-q", str(tmp_path / "m.pt")], check=True)
    (path,) = [each for each in tmp_path.iterdir() if each.name != "m.pt"]
    assert {finding.code for finding in ckptdoctor.check(path).findings} == {"C102", "N401"}


def test_an_encrypted_archive_wants_its_password(tmp_path):
    """Fetching it again would not help, and nothing in it is damaged."""
    data = bytearray(zipped(saved(tmp_path), "m.pt"))
    for signature, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(signature) + place] |= 1
    (tmp_path / "m.zip").write_bytes(data)
    report = ckptdoctor.check(tmp_path / "m.zip")
    assert not report.findings and '"m.pt" in it is encrypted: unpack it with its password' in report.error


def test_of_several_one_is_named(tmp_path):
    """The message names them and says how to choose; a path into the archive chooses."""
    path = tmp_path / "weights.zip"
    path.write_bytes(zipped(saved(tmp_path), "a/one.pt", **{"a/two.pt": saved(tmp_path), "notes.txt": b"x"}))
    error = ckptdoctor.check(path).error
    assert '"a/one.pt", "a/two.pt"' in error and f"{path}/a/one.pt" in error and "notes" not in error
    report = ckptdoctor.check(path / "a/two.pt")
    assert report.error is None and report.path == str(path / "a/two.pt")
    assert ckptdoctor.fix(path / "a/two.pt", select=["C102"]).output == str(tmp_path / "two.pt")
    assert 'does not hold "a/three.pt"' in ckptdoctor.check(path / "a/three.pt").error
    assert "cannot be opened" in ckptdoctor.check(tmp_path / "none.zip/one.pt").error
    torch.save(STATE, tmp_path / "m.pt")
    assert "m.pt is not an archive" in ckptdoctor.check(tmp_path / "m.pt" / "one.pt").error


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("m.pt.gz", gzip.compress(b"just some text" * 1000, mtime=0), "is a gzip file"),
        ("empty.gz", gzip.compress(b"", mtime=0), "is a gzip file"),
        ("m.zip", zipped(b"text" * 500, "notes.txt"), 'does not hold a checkpoint, only "notes.txt"'),
        ("m.tar", in_tar(b"text" * 500, "notes.txt"), "does not hold a checkpoint"),
        ("again.zip", zipped(zipped(zipped(zipped(b"PK\3\4", "m.pt"), "c.zip"), "b.zip"), "a.zip"), "zip archive"),
        ("parts.zip", zipped(b"\x80\x02}.", "data.pkl", version=b"3\n", byteorder=b"little"), "packed again"),
    ],
)
def test_what_holds_no_checkpoint_stays_what_it_is(name, data, words, tmp_path):
    """The error says what the file is, as it did, and nothing is written anywhere."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(NotACheckpointError, match=words):
        formats.open_checkpoint(tmp_path / name)


@pytest.mark.parametrize(
    ("second", "ending"), [("b.pt", "name one of them, as in {}/b.pt"), ("b\n.pt", "one of them.")]
)
def test_a_name_that_nobody_can_type_is_no_example(second, ending, tmp_path):
    """Where members are to choose from, one with a line break in its name never breaks the sentence."""
    path = tmp_path / "two.zip"
    data = saved(tmp_path)
    path.write_bytes(zipped(data, "a\n::error::no.pt", **{second: data}))
    with pytest.raises(NotACheckpointError) as caught:
        formats.open_checkpoint(path)
    assert caught.value.message.endswith(ending.format(path))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["m.pt.gz", "m.pt.bz2", "m.pt.xz", "m.tgz"])
def test_a_cut_file_is_told(name, tmp_path):
    """A finding says that it breaks off; reading says the same."""
    data = WAYS[name](saved(tmp_path) + os.urandom(100_000))
    (tmp_path / name).write_bytes(data[: len(data) * 2 // 3])
    report = ckptdoctor.check(tmp_path / name)
    assert report.findings and "before its contents do" in report.findings[0].message
    with pytest.raises(TruncatedError):
        formats.open_checkpoint(tmp_path / name)


@pytest.mark.parametrize("name", ["m.pt.gz", "m.pt.bz2", "m.pt.xz", "deflated.zip", "stored.zip"])
def test_a_flipped_bit_is_told(name, tmp_path):
    """By the checksum of what it is packed in."""
    data = bytearray(WAYS[name](saved(tmp_path)))
    data[len(data) // 2] ^= 4
    (tmp_path / name).write_bytes(data)
    report = ckptdoctor.check(tmp_path / name)
    assert report.findings and "cannot be unpacked" in report.findings[0].message
    assert report.checkpoint is None


def test_cutting_or_flipping_anything_gives_an_answer(tmp_path):
    """Every way of packing, cut and changed at many places."""
    import random

    random_ = random.Random(11)
    inside = saved(tmp_path)
    for name, pack in WAYS.items():
        whole = pack(inside)
        for _ in range(8):
            sick = bytearray(whole[: random_.randrange(1, len(whole) + 1)])
            for _ in range(random_.randrange(4)):
                sick[random_.randrange(len(sick))] = random_.randrange(256)
            (tmp_path / name).write_bytes(sick)
            report = check(str(tmp_path / name))
            assert report.findings or report.error or report.checkpoint is not None


def test_what_is_damaged_inside_is_told_as_such(tmp_path):
    """A cut checkpoint in a whole gzip file is a cut checkpoint."""
    (tmp_path / "m.pt.gz").write_bytes(gzip.compress(saved(tmp_path)[:-200], mtime=0))
    assert {"C102", "F005"} == {finding.code for finding in ckptdoctor.check(tmp_path / "m.pt.gz").findings}


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    """Beyond a limit, nothing that shrank to a two-thousandth is a checkpoint."""
    monkeypatch.setattr(unpacking, "_BEYOND", 1 << 20)
    (tmp_path / "m.pt.bz2").write_bytes(bz2.compress(b"\x80\x02" + bytes(40_000_000)))
    report = ckptdoctor.check(tmp_path / "m.pt.bz2")
    assert "made to fill disks" in report.findings[0].message
    assert os.listdir(scratch.folder()) == [".lock"]


def test_a_bomb_in_a_packed_file_is_held_against_the_packed_file(tmp_path, monkeypatch):
    """What a small file unpacks to may not be large enough to let its own inside be larger by far."""
    monkeypatch.setattr(unpacking, "_BEYOND", 1 << 20)
    inner = gzip.compress(b"\x80\x02" + bytes(60_000_000), mtime=0)
    (tmp_path / "m.pt.gz").write_bytes(gzip.compress(inner, mtime=0))
    assert len(inner) * 2_000 > 60_000_000 > 2_000 * (tmp_path / "m.pt.gz").stat().st_size
    assert "made to fill disks" in ckptdoctor.check(tmp_path / "m.pt.gz").findings[0].message


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="holes of files are told otherwise")
@pytest.mark.parametrize("name", ["m.pt.gz", "m.zip"])
def test_zeros_take_no_room(name, tmp_path):
    """Whatever the format, zeros are unpacked to holes; that they were written is not doubted, nor is any byte lost."""
    weights = {"a": torch.zeros(40_000_000), "b": torch.cat([torch.ones(9), torch.zeros(5_000_000), torch.ones(9)])}
    torch.save(weights, tmp_path / "m.pt")
    if name.endswith(".zip"):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(tmp_path / "m.pt", "m.pt")
    else:
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / "m.pt").read_bytes(), mtime=0))
    scratch.remove()  # what other tests have unpacked
    report = ckptdoctor.check(tmp_path / name)
    (file,) = [each for each in os.listdir(scratch.folder()) if each != ".lock"]
    status = os.stat(os.path.join(scratch.folder(), file))
    assert status.st_size == (tmp_path / "m.pt").stat().st_size and status.st_blocks * 512 < 10_000_000
    assert {each.code for each in report.findings} == {"C102"}
    assert {each.code for each in ckptdoctor.check(tmp_path / name, deep=True).findings} <= {
        each.code for each in ckptdoctor.check(tmp_path / "m.pt", deep=True).findings
    } | {"C102"}
    loaded = ckptdoctor.load(tmp_path / name)
    assert all(torch.equal(loaded[key], weights[key]) for key in weights)


def test_holes_of_the_unpacked_file_are_no_damage(tmp_path):
    """Headers do not say that zeros are missing bytes: only the file that was packed could have lacked them."""
    weights = torch.cat([torch.ones(1024), torch.zeros(4096 * 1024), torch.ones(1024)])
    header = b'{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[4196352],"data_offsets":[0,16785408]}}'
    header = header.ljust(4088)
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", 4088) + header + weights.numpy().tobytes())
    assert "F010" in {each.code for each in ckptdoctor.check(tmp_path / "m.safetensors", deep=True).findings}
    with zipfile.ZipFile(tmp_path / "m.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tmp_path / "m.safetensors", "m.safetensors")
    for path in (tmp_path / "m.zip", tmp_path / "m.zip" / "m.safetensors"):
        report = ckptdoctor.check(path)
        assert report.error is None and {each.code for each in report.findings} == {"C102"}


def test_a_full_disk_is_left_some_room(tmp_path, monkeypatch):
    """What is free is looked at, and a tenth of it stays."""
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    (tmp_path / "m.pt.gz").write_bytes(gzip.compress(saved(tmp_path), mtime=0))
    with pytest.raises(RefusedError, match="TMPDIR"):
        formats.open_checkpoint(tmp_path / "m.pt.gz")
    assert "leave some space" in ckptdoctor.check(tmp_path / "m.pt.gz").error


def test_a_hostile_dictionary_size_is_refused(tmp_path):
    """xz that wants more memory than any honest file is not given it."""
    maker = lzma.LZMACompressor(format=lzma.FORMAT_XZ, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}])
    data = bytearray(maker.compress(saved(tmp_path)) + maker.flush())
    assert data[14:17] == b"\x21\x01\x10"  # in the block header: LZMA2, and as its one property 2 << 19
    data[16] = 39  # 3 << 30
    size = (data[12] + 1) * 4
    data[12 + size - 4 : 12 + size] = zlib.crc32(bytes(data[12 : 12 + size - 4])).to_bytes(4, "little")
    (tmp_path / "m.pt.xz").write_bytes(data)
    assert "Memory usage limit" in ckptdoctor.check(tmp_path / "m.pt.xz").findings[0].message


def test_permissions_are_those_of_the_packed_file(tmp_path):
    """As gunzip leaves them."""
    path = tmp_path / "m.pt.gz"
    path.write_bytes(gzip.compress(saved(tmp_path), mtime=0))
    path.chmod(0o640)
    assert os.stat(ckptdoctor.fix(path).output).st_mode & 0o777 == 0o640


def test_a_file_is_unpacked_once(tmp_path):
    """And again when it has changed."""
    path = tmp_path / "m.pt.gz"
    path.write_bytes(gzip.compress(saved(tmp_path), mtime=0))
    for _ in range(3):
        assert ckptdoctor.check(path).error is None
    assert len(os.listdir(scratch.folder())) == 2
    path.write_bytes(gzip.compress(saved(tmp_path, "safetensors"), mtime=0))
    assert ckptdoctor.check(path).checkpoint.format == "safetensors"


def test_an_output_that_is_there_is_not_replaced(tmp_path):
    """model.pt beside model.pt.gz stays as it is; a zip archive called model.pt gives model.fixed.pt."""
    torch.save({"other": torch.ones(1)}, tmp_path / "m.pt")
    (tmp_path / "m.pt.gz").write_bytes(gzip.compress(saved(tmp_path), mtime=0))
    with pytest.raises(WriteError, match="already exists"):
        ckptdoctor.fix(tmp_path / "m.pt.gz")
    assert list(torch.load(tmp_path / "m.pt")) == ["other"]
    (tmp_path / "n.pt").write_bytes(zipped(saved(tmp_path), "../../evil.pt"))
    assert ckptdoctor.fix(tmp_path / "n.pt").output == str(tmp_path / "n.fixed.pt")


def test_the_note_says_what_is_around_it(tmp_path):
    """From the inside out."""
    path = tmp_path / "m.zip"
    path.write_bytes(zipped(in_tar(saved(tmp_path), "m.pt", "w:xz"), "m.tar.xz"))
    with formats.opened(path) as (_, container):
        (note,) = [each for each in container.notes if each.kind is NoteKind.ARCHIVE_WRAPPED]
    assert note.message == "a PyTorch .pt (zip) is packed in a tar archive in an xz file in a zip archive"
    assert note.member == "m.tar.xz"


def test_a_python_that_cannot_unpack_zstd_says_what_to_install(tmp_path, monkeypatch):
    """The package, or the tool."""
    (tmp_path / "m.pt.zst").write_bytes(zstd(saved(tmp_path)))
    monkeypatch.setitem(sys.modules, "compression", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert "ckptdoctor[zstd]" in ckptdoctor.check(tmp_path / "m.pt.zst").error


def test_unpacking_tells_how_far_it_is(tmp_path):
    """Whoever listens hears how many bytes there are by now; and where nobody wants more, nothing is left of them."""
    (tmp_path / "m.pt.gz").write_bytes(gzip.compress(saved(tmp_path), mtime=0))
    told = []
    with heard(told.append):
        formats.open_checkpoint(tmp_path / "m.pt.gz")
    assert told and {(each.what, each.total) for each in told} == {("unpacking", 0)}
    assert [each.done for each in told] == sorted([each.done for each in told]) and told[-1].done > 0
    scratch.remove()

    def end(progress):
        raise StoppedError

    with pytest.raises(StoppedError), heard(end):
        formats.open_checkpoint(tmp_path / "m.pt.gz")
    told.clear()
    with heard(told.append):
        formats.open_checkpoint(tmp_path / "m.pt.gz")
    assert told
