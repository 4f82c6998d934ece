"""F012 and F013: what a file's name, and what lies beside it, say of the file."""

from __future__ import annotations

import hashlib
import os

import pytest
import torch

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from tests.rules.examined import found


@pytest.fixture
def model(tmp_path):
    """A file under its own hash, as torch.hub names them."""
    path = tmp_path / "model.pt"
    torch.save({"w": torch.zeros(300)}, path)
    digits = hashlib.sha256(path.read_bytes()).hexdigest()
    return path.rename(tmp_path / f"net-{digits[:8]}.pth")


def test_the_right_hash_is_not_mentioned(model):
    """Nor is it looked at without --deep."""
    assert found(model, "F012", deep=True) == []
    other = model.rename(model.with_name("net-f37072fd.pth"))
    assert found(other, "F012") == []
    assert found(other, "F012", deep=True)[0].severity is Severity.WARNING


def test_the_words_of_torch_hub(model, monkeypatch):
    """The line is the one with which torch.hub refuses a download."""
    other = model.rename(model.with_name("net-f37072fd.pth"))
    (finding,) = found(other, "F012", deep=True)
    with pytest.raises(RuntimeError) as caught:
        torch.hub.download_url_to_file(other.as_uri(), str(other.with_name("copy.pth")), "f37072fd", progress=False)
    assert finding.torch_says[0] in str(caught.value)


def test_a_list_beside_it_is_certain(model):
    """A sum that somebody wrote down is a promise."""
    (model.parent / "SHA256SUMS").write_text(f"{'0' * 64}  {model.name}\n")
    (finding,) = found(model, "F012", deep=True)
    assert finding.severity is Severity.ERROR
    assert finding.torch_says == ()
    assert "SHA256SUMS" in finding.message


def test_the_hash_costs_one_more_pass_over_the_file(model):
    """Only where there is something to hold it against."""
    with_hash = check(str(model), Settings(deep=True))
    plain = model.rename(model.with_name("net.pth"))
    assert with_hash.bytes_read <= plain.stat().st_size
    assert found(plain, "F012", deep=True) == []


@pytest.mark.parametrize("suffix", [".incomplete", ".part", ".crdownload", ".tmp", "~"])
def test_leftovers_beside_a_file(model, suffix):
    """Newer ones say that the file is older than it may seem; they are information."""
    left = model.with_name(model.name + suffix)
    left.write_bytes(b"PK")
    os.utime(left, ns=(2**62, 2**62))
    (finding,) = found(model, "F013")
    assert finding.severity is Severity.INFO
    assert finding.message.startswith("a newer ")
    os.utime(left, ns=(1, 1))
    assert not found(model, "F013")[0].message.startswith("a newer ")
    left.unlink()
    assert found(model, "F013") == []


def test_an_unfinished_file_itself(model):
    """Its own name tells."""
    left = model.rename(model.with_name(model.name + ".part"))
    assert ".part" in found(left, "F013")[0].message


def test_aria2_is_not_done(model):
    """The file has its full length but not all its bytes: a warning."""
    model.with_name(model.name + ".aria2").write_bytes(b"\0\1")
    assert found(model, "F013")[0].severity is Severity.WARNING
