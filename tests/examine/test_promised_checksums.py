"""Which checksum a file should have, as the programs that write such lists write them."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess

import pytest
import torch

import ckptdoctor


def saved(value: float) -> bytes:
    """A file of torch with one tensor."""
    buffer = io.BytesIO()
    torch.save({"fc.weight": torch.full((2, 3), value)}, buffer)
    return buffer.getvalue()


CONTENT = saved(1.0)
DIGITS = hashlib.sha256(CONTENT).hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()
MD5, OTHER_MD5 = hashlib.md5(CONTENT).hexdigest(), hashlib.md5(b"other").hexdigest()


def told(path, content=CONTENT):
    """Who says of a file that it has another checksum than its own, which kind, and how sure that is; None: nobody."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    findings = ckptdoctor.check(path, deep=True, select=["F012"]).findings
    if not findings:
        return None
    (finding,) = findings
    kind, by = re.fullmatch(r"its (.+) is \w+…?, but (.+) gives \w+…?", finding.message).groups()
    return by, kind, finding.severity.value


def test_nothing_is_said_of_most_files(tmp_path):
    """No list, no hash in the name: nothing to hold the file against."""
    assert told(tmp_path / "model.pt") is None


@pytest.mark.parametrize(
    "name",
    ["model-20240501.pt", "epoch-00000012.pth", "model-abc.pth", "model-f37072fd", "f37072fd.pth", "a-F37072FD.pt"],
)
def test_names_without_a_hash(tmp_path, name):
    """Dates, counts, and digits in other places are no checksums."""
    assert told(tmp_path / name) is None


@pytest.mark.parametrize("name", ["resnet18-{}.pth", "ssd-{}.pth.tar", "vit-{}.safetensors"])
@pytest.mark.parametrize("digits", [8, 64])
def test_the_convention_of_torch_hub(tmp_path, name, digits):
    """Digits after the last hyphen; that they are a checksum is not sure."""
    assert told(tmp_path / name.format(OTHER[:digits])) == ("its name", "SHA-256", "warning")
    assert told(tmp_path / name.format(DIGITS[:digits])) is None


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs coreutils")
@pytest.mark.parametrize("options", [[], ["--binary"], ["--tag"]], ids=str)
def test_lists_that_sha256sum_wrote(tmp_path, options):
    """In each of its styles, for the file alone or among others."""
    (tmp_path / "other.pt").write_bytes(b"other")
    (tmp_path / "model.pt").write_bytes(CONTENT)
    listed = subprocess.run(
        ["sha256sum", *options, "other.pt", "model.pt"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (tmp_path / "SHA256SUMS").write_text(listed.stdout)
    assert told(tmp_path / "model.pt") is None
    assert told(tmp_path / "model.pt", saved(2.0)) == ("SHA256SUMS", "SHA-256", "error")


def test_a_sum_without_a_name_belongs_to_the_file_that_the_list_is_called_after(tmp_path):
    """``model.pt.sha256`` may hold nothing but the sum; ``model.sha256`` may be of any ``model.*``."""
    (tmp_path / "model.sha256").write_text(f"{OTHER}\n")
    assert told(tmp_path / "model.pt") is None
    (tmp_path / "model.pt.sha256").write_text(f"{OTHER}\n")
    assert told(tmp_path / "model.pt") == ("model.pt.sha256", "SHA-256", "error")
    (tmp_path / "model.pt.sha256").write_text(f"{DIGITS}\n")
    assert told(tmp_path / "model.pt") is None


def test_the_cache_and_the_notes_of_huggingface_hub(tmp_path):
    """Blobs are called after their checksum; a download into a folder is noted beside it, with commit, ETag, time."""
    blobs = tmp_path / "models--a--b" / "blobs"
    assert told(blobs / OTHER) == ("its name in the cache of huggingface_hub", "SHA-256", "error")
    assert told(blobs / DIGITS) is None
    notes = tmp_path / "local" / ".cache" / "huggingface" / "download"
    notes.mkdir(parents=True)
    path = tmp_path / "local" / "model.safetensors"
    for etag, said in ((OTHER, True), (DIGITS, False), ("b" * 40, False)):  # the last is a git object's name
        (notes / "model.safetensors.metadata").write_text(f"{'a' * 40}\n{etag}\n1700000000.0\n")
        found = told(path)
        assert (found is not None) is said, etag
        assert found is None or found[1:] == ("SHA-256", "error")


@pytest.mark.parametrize("text", ["", "\n\n", "no sum", "g" * 64, "\0" * 100, f"{OTHER[:-1]}  model.pt"])
def test_lists_that_make_no_sense(tmp_path, text):
    """They promise nothing."""
    (tmp_path / "model.pt.sha256").write_text(text)
    assert told(tmp_path / "model.pt") is None


def test_md5_sums_are_taken_where_they_are_called_so(tmp_path):
    """``model.pt.md5`` and ``MD5SUMS``; a sum as long in another list may be anything, and SHA-256 goes first."""
    path = tmp_path / "model.pt"
    (tmp_path / "checksums.txt").write_text(f"{OTHER_MD5}  model.pt\n")
    assert told(path) is None
    (tmp_path / "MD5SUMS").write_text(f"{OTHER_MD5}  model.pt\n")
    assert told(path) == ("MD5SUMS", "MD5", "error")
    (tmp_path / "model.pt.md5").write_text(f"{OTHER_MD5}\n")
    assert told(path) == ("model.pt.md5", "MD5", "error")
    (tmp_path / "model.pt.md5").write_text(f"{MD5}\n")
    assert told(path) is None
    (tmp_path / "SHA256SUMS").write_text(f"{OTHER}  model.pt\n")
    assert told(path) == ("SHA256SUMS", "SHA-256", "error")


def test_git_lfs_keeps_files_under_their_checksums(tmp_path):
    """In ``.git/lfs/objects``, below the first four digits; elsewhere such a name says nothing."""
    objects = tmp_path / ".git" / "lfs" / "objects"
    for digits, said in ((OTHER, ("its name in the store of Git LFS", "SHA-256", "error")), (DIGITS, None)):
        assert told(objects / digits[:2] / digits[2:4] / digits) == said
    assert told(tmp_path / OTHER) is None
