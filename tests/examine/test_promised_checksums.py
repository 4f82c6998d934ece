"""Which SHA-256 a file should have, as the programs that write such lists write them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess

import pytest

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.examine.promised_checksums import digest_of, promise_of

CONTENT = b"weights" * 1000
DIGITS = hashlib.sha256(CONTENT).hexdigest()


def promised(path):
    """The promise for a file with the contents of these tests."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CONTENT)
    with FileSource(path) as source:
        assert digest_of(source, "sha256") == DIGITS
        assert digest_of(source, "md5") == hashlib.md5(CONTENT).hexdigest()
        return promise_of(source)


def test_nothing_is_said_of_most_files(tmp_path):
    """No list, no hash in the name: nothing to hold the file against."""
    assert promised(tmp_path / "model.pt") is None


@pytest.mark.parametrize(
    "name",
    ["model-20240501.pt", "epoch-00000012.pth", "model-abc.pth", "model-f37072fd", "f37072fd.pth", "a-F37072FD.pt"],
)
def test_names_without_a_hash(tmp_path, name):
    """Dates, counts, and digits in other places are no checksums."""
    assert promised(tmp_path / name) is None


@pytest.mark.parametrize("name", ["resnet18-f37072fd.pth", "ssd-f37072fd.pth.tar", f"vit-{DIGITS}.safetensors"])
def test_the_convention_of_torch_hub(tmp_path, name):
    """Digits after the last hyphen; that they are a checksum is not sure."""
    promise = promised(tmp_path / name)
    assert promise is not None and not promise.sure and name.split("-")[1].startswith(promise.digits)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs coreutils")
@pytest.mark.parametrize("options", [[], ["--binary"], ["--tag"]], ids=str)
def test_lists_that_sha256sum_wrote(tmp_path, options):
    """In each of its styles, for the file alone or among others."""
    (tmp_path / "other.pt").write_bytes(b"other")
    promised(tmp_path / "model.pt")
    listed = subprocess.run(
        ["sha256sum", *options, "other.pt", "model.pt"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (tmp_path / "SHA256SUMS").write_text(listed.stdout)
    promise = promised(tmp_path / "model.pt")
    assert promise is not None and (promise.digits, promise.by, promise.sure) == (DIGITS, "SHA256SUMS", True)


def test_a_sum_without_a_name_belongs_to_the_file_that_the_list_is_called_after(tmp_path):
    """``model.pt.sha256`` may hold nothing but the sum; ``model.sha256`` may be of any ``model.*``."""
    (tmp_path / "model.pt.sha256").write_text(f"{DIGITS}\n")
    (tmp_path / "model.sha256").write_text("0" * 64)
    promise = promised(tmp_path / "model.pt")
    assert promise is not None and promise.digits == DIGITS
    (tmp_path / "model.pt.sha256").unlink()
    (tmp_path / "model.sha256").write_text("0" * 64 + "\n")
    assert promised(tmp_path / "model.pt") is None


def test_the_cache_and_the_notes_of_huggingface_hub(tmp_path):
    """Blobs are called after their checksum; a download into a folder is noted beside it, with commit, ETag, time."""
    promise = promised(tmp_path / "models--a--b" / "blobs" / DIGITS)
    assert promise is not None and promise.digits == DIGITS and promise.sure
    notes = tmp_path / "local" / ".cache" / "huggingface" / "download"
    notes.mkdir(parents=True)
    (notes / "model.safetensors.metadata").write_text(f"{'a' * 40}\n{DIGITS}\n1700000000.0\n")
    promise = promised(tmp_path / "local" / "model.safetensors")
    assert promise is not None and promise.digits == DIGITS
    (notes / "model.safetensors.metadata").write_text(f"{'a' * 40}\n{'b' * 40}\n1700000000.0\n")  # a git object's name
    assert promised(tmp_path / "local" / "model.safetensors") is None


@pytest.mark.parametrize("text", ["", "\n\n", "no sum", "g" * 64, "\0" * 100, f"{DIGITS[:-1]}  model.pt"])
def test_lists_that_make_no_sense(tmp_path, text):
    """They promise nothing."""
    (tmp_path / "model.pt.sha256").write_text(text)
    assert promised(tmp_path / "model.pt") is None


def test_md5_sums_are_taken_where_they_are_called_so(tmp_path):
    """``model.pt.md5`` and ``MD5SUMS``; a sum as long in another list may be anything, and SHA-256 goes first."""
    path = tmp_path / "model.pt"
    path.write_bytes(CONTENT)
    md5 = hashlib.md5(CONTENT).hexdigest()
    (tmp_path / "checksums.txt").write_text(f"{md5}  model.pt\n")
    with FileSource(path) as source:
        assert promise_of(source) is None
        (tmp_path / "MD5SUMS").write_text(f"{md5}  model.pt\n")
        assert _told(source) == (md5, "MD5SUMS", "MD5")
        (tmp_path / "model.pt.md5").write_text(f"{md5}\n")
        assert _told(source) == (md5, "model.pt.md5", "MD5")
        (tmp_path / "SHA256SUMS").write_text(f"{DIGITS}  model.pt\n")
        assert _told(source) == (DIGITS, "SHA256SUMS", "SHA-256")


def _told(source):
    promise = promise_of(source)
    return promise.digits, promise.by, promise.kind


def test_git_lfs_keeps_files_under_their_checksums(tmp_path):
    """In ``.git/lfs/objects``, below the first four digits; elsewhere such a name says nothing."""
    folder = tmp_path / ".git" / "lfs" / "objects" / DIGITS[:2] / DIGITS[2:4]
    folder.mkdir(parents=True)
    (folder / DIGITS).write_bytes(CONTENT)
    (tmp_path / DIGITS).write_bytes(CONTENT)
    with FileSource(folder / DIGITS) as source:
        assert _told(source) == (DIGITS, "its name in the store of Git LFS", "SHA-256")
    with FileSource(tmp_path / DIGITS) as source:
        assert promise_of(source) is None
