"""A copy on another machine: only damaged tensors are fetched, and the whole is proven by a hash that was published."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
import zipfile

import fsspec
import pytest
import torch

import ckptdoctor
from ckptdoctor.errors import RefusedError, UnreadableError, UsageError
from tests.commands import run_here
from tests.grafting.copies import SAVE
from tests.remote.server import serving

WEIGHTS = {f"layer{index}.weight": torch.rand(100_000) for index in range(8)}
SIZE = 4 * 100_000  # bytes of a tensor
HEAD = 64 << 10  # bytes of the beginning, which the first request brings
PAGE = 4096  # bytes; a hole of pages is seen where there are no checksums


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The files that servers have, by their suffixes."""
    folder = tmp_path_factory.mktemp("saved")
    for suffix, save in SAVE.items():
        save(WEIGHTS, folder / f"good{suffix}")
    return {suffix: (folder / f"good{suffix}").read_bytes() for suffix in SAVE}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("ckptdoctor.remote.http.DELAYS", (0.0, 0.01))


def damaged(folder, whole, suffix, keys=("layer3.weight",)):
    """A copy of a file in which these tensors have a hole of zeros."""
    data = bytearray(whole)
    for key in keys:
        at = data.index(WEIGHTS[key].numpy().tobytes())
        first = at + SIZE // 4 + -(at + SIZE // 4) % PAGE
        data[first : first + 20 * PAGE] = bytes(20 * PAGE)
    path = folder / f"bad{suffix}"
    path.write_bytes(data)
    return path


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def in_base64(kind, data):
    return base64.b64encode(hashlib.new(kind, data).digest()).decode()


PUBLISHED = {
    "ETag": lambda data: {"ETag": f'"{sha256(data)}"'},
    "an MD5 as the ETag": lambda data: {"ETag": f'"{hashlib.md5(data).hexdigest()}"'},
    "X-Linked-ETag": lambda data: {"ETag": '"other"', "X-Linked-ETag": f'"{sha256(data)}"'},
    "Repr-Digest": lambda data: {"Repr-Digest": f"sha-256=:{in_base64('sha256', data)}:"},
    "Google Cloud Storage": lambda data: {"x-goog-hash": f"crc32c=AAAAAA==,md5={in_base64('md5', data)}"},
}


@pytest.mark.parametrize("how", PUBLISHED)
def test_only_the_damaged_tensor_is_fetched_and_a_published_hash_proves_the_whole(how, saved, tmp_path):
    """Of a container without checksums: the output is the file that was saved, at the price of a tensor and headers."""
    whole = saved[".safetensors"]
    bad = damaged(tmp_path, whole, ".safetensors")
    before = bad.read_bytes()
    with serving(files={"good.safetensors": whole}, etag=None, headers=PUBLISHED[how](whole)) as server:
        report = ckptdoctor.graft(bad, server.url("good.safetensors"), tmp_path / "out.safetensors")
        sent = server.sent
    assert (tmp_path / "out.safetensors").read_bytes() == whole and bad.read_bytes() == before
    assert [each.ground for each in report.grafted] == ["published"] and report.published
    assert sent == report.fetched <= SIZE + HEAD < report.donor_size / 3


@pytest.mark.parametrize("count", [1, 3])
def test_an_archive_is_proven_by_its_checksums_and_by_the_hash(count, saved, tmp_path):
    """The headers of both show that all other tensors are equal; each tensor that was fetched has its own proof."""
    whole, keys = saved[".pt"], [f"layer{index}.weight" for index in range(2, 2 + count)]
    bad = damaged(tmp_path, whole, ".pt", keys)
    with serving(files={"good.pt": whole}, etag=f'"{sha256(whole)}"') as server:
        report = ckptdoctor.graft(bad, server.url("good.pt"), tmp_path / "out.pt")
        sent = server.sent
    assert (tmp_path / "out.pt").read_bytes() == whole
    assert {each.ground for each in report.grafted} == {"checksum"} and len(report.grafted) == count
    assert report.likeness.by_checksums and report.likeness.equal == 8 - count and not report.likeness.unlike
    assert sent == report.fetched < count * SIZE + (400 << 10)


def test_without_a_published_hash_no_more_is_said_than_was_proven(saved, tmp_path):
    """What its own checksum proves is grafted, and the file as a whole is called unproven."""
    damaged(tmp_path, saved[".pt"], ".pt")
    with serving(files={"good.pt": saved[".pt"]}) as server:
        done = run_here("graft", "bad.pt", "--from", server.url("good.pt"), "-o", "out.pt", cwd=tmp_path)
    text = " ".join(done.stdout.decode().split())
    assert done.returncode == 0 and (tmp_path / "out.pt").read_bytes() == saved[".pt"]
    assert "the file as a whole is not proven: no hash of it is published" in text and "the whole file has" not in text


def test_without_any_proof_it_is_refused_with_the_commands_that_compare_everything(saved, tmp_path):
    """No checksum, no published hash: only consent is left, which makes no proof of it."""
    damaged(tmp_path, saved[".safetensors"], ".safetensors")
    with serving(files={"good.safetensors": saved[".safetensors"]}) as server:
        address = server.url("good.safetensors")
        done = run_here("graft", "bad.safetensors", "--from", address, cwd=tmp_path)
        assert done.returncode == 1 and list(tmp_path.iterdir()) == [tmp_path / "bad.safetensors"]
        text = done.stdout.decode()
        assert f"curl -fLO {address}" in text and "graft bad.safetensors --from good.safetensors" in text
        report = ckptdoctor.graft(tmp_path / "bad.safetensors", address, unsafe_fixes=True)
    assert [each.ground for each in report.grafted] == ["consent"] and not report.published


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_another_version_is_refused(suffix, saved, tmp_path):
    """By the checksums of an archive, or because the result would not have the hash that is published."""
    bad = damaged(tmp_path, saved[suffix], suffix)
    SAVE[suffix]({key: tensor * 1.001 for key, tensor in WEIGHTS.items()}, tmp_path / "later")
    later = (tmp_path / "later").read_bytes()
    with serving(files={f"later{suffix}": later}, etag=f'"{sha256(later)}"') as server:
        with pytest.raises(RefusedError) as refused:
            ckptdoctor.graft(bad, server.url(f"later{suffix}"))
        assert server.sent < SIZE + (400 << 10)
    assert "does not have the SHA-256 that" in refused.value.message
    assert ("7 differ" in refused.value.message) == (suffix == ".pt")
    assert not list(tmp_path.glob("*.grafted*"))


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_seal_proves_it_too(where, saved, tmp_path):
    """Next to the damaged file, or next to the other copy."""
    whole = saved[".safetensors"]
    (tmp_path / "good.safetensors").write_bytes(whole)
    seal = tmp_path / "good.safetensors.seal.json"
    ckptdoctor.seal(tmp_path / "good.safetensors")
    bad = damaged(tmp_path, whole, ".safetensors")
    files = {"good.safetensors": whole}
    if where == "there":
        files[seal.name] = seal.read_bytes()
    else:
        (tmp_path / "bad.safetensors.seal.json").write_bytes(seal.read_bytes())
    with serving(files=files) as server:
        report = ckptdoctor.graft(bad, server.url("good.safetensors"), tmp_path / "out.safetensors")
    assert (tmp_path / "out.safetensors").read_bytes() == whole and "seal" in report.published


def test_the_hub_publishes_the_oid_of_git_lfs(saved, tmp_path, monkeypatch):
    """hf:// is read from its endpoint, which redirects to where the bytes are, and says on the way what they are."""
    whole = saved[".safetensors"]
    damaged(tmp_path, whole, ".safetensors")
    with serving(files={"store/it": whole}, headers={"X-Linked-ETag": f'"{sha256(whole)}"'}) as server:
        server.redirects["me/net/resolve/main/model.safetensors"] = server.url("store/it")
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        line = ["graft", "bad.safetensors", "--from", "hf://me/net/model.safetensors", "-o", "out.safetensors"]
        done = run_here(*line, cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "out.safetensors").read_bytes() == whole
    text = " ".join(done.stdout.decode().split())
    assert "verified · the whole file has the SHA-256 that hf://me/net/model.safetensors publishes" in text


def test_what_fsspec_reaches_is_read_in_parts_as_well(saved, tmp_path):
    """Its file systems say what they know of a file; this one says nothing, and checksums prove the tensor."""
    store = fsspec.filesystem("memory")
    store.pipe("/run/good.pt", saved[".pt"])
    report = ckptdoctor.graft(damaged(tmp_path, saved[".pt"], ".pt"), "memory://run/good.pt", tmp_path / "out.pt")
    assert (tmp_path / "out.pt").read_bytes() == saved[".pt"] and report.fetched < SIZE + (400 << 10)
    store.rm("/run", recursive=True)


def deflated(whole, path):
    """The archive with compressed records."""
    path.write_bytes(whole)
    with zipfile.ZipFile(path) as packed, zipfile.ZipFile(path.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as file:
        for info in packed.infolist():
            file.writestr(info.filename, packed.read(info))
    return path.with_suffix(".zip").read_bytes()


@pytest.mark.parametrize("kind", [".safetensors", ".pth", "deflated"])
def test_the_other_copy_may_be_in_another_container(kind, saved, tmp_path):
    """The checksum in the damaged file proves the values, whatever they were fetched from."""
    bad = damaged(tmp_path, saved[".pt"], ".pt")
    data = deflated(saved[".pt"], tmp_path / "deflated") if kind == "deflated" else saved[kind]
    with serving(files={"other": data}) as server:
        report = ckptdoctor.graft(bad, server.url("other"), tmp_path / "out.pt")
        assert server.sent < len(data) / 2
    assert (tmp_path / "out.pt").read_bytes() == saved[".pt"]
    assert [each.ground for each in report.grafted] == ["checksum"]


@pytest.mark.parametrize(
    "trouble", [{"breaks": [HEAD] + [0] * 99}, {"statuses": [200] + [503] * 99}], ids=["breaks", "503"]
)
def test_a_network_that_fails_leaves_everything_as_it_was(trouble, saved, tmp_path):
    """While the tensor is fetched: one sentence, no output, and nothing left of what was fetched."""
    bad = damaged(tmp_path, saved[".safetensors"], ".safetensors")
    before = bad.read_bytes()
    with (
        serving(files={"good.safetensors": saved[".safetensors"]}, **trouble) as server,
        pytest.raises(UnreadableError) as failed,
    ):
        ckptdoctor.graft(bad, server.url("good.safetensors"), tmp_path / "out.safetensors")
    assert len(server.requests) > 1 and "\n" not in failed.value.message
    assert bad.read_bytes() == before and list(tmp_path.iterdir()) == [bad]
    left = [os.path.join(folder, name) for folder, _, names in os.walk(tempfile.gettempdir()) for name in names]
    assert not any(os.path.getsize(path) == len(before) for path in left if "ckptdoctor-unpacked" in path)


def test_what_cannot_be_fetched_in_parts_is_refused_with_the_download(saved, tmp_path):
    """A folder, a packed file; secrets in an address are not shown."""
    import gzip

    bad = damaged(tmp_path, saved[".pt"], ".pt")
    with serving(files={"good.pt.gz": gzip.compress(saved[".pt"], 1), "good.pt": saved[".pt"]}) as server:
        with pytest.raises(UsageError, match=r"cannot be fetched in parts\. Download it: curl -fLO .*/good\.pt\.gz"):
            ckptdoctor.graft(bad, server.url("good.pt.gz"))
        with pytest.raises(UsageError, match="is a folder"):
            ckptdoctor.graft(bad, server.url("run/"))
        secret = server.url("good.pt").replace("://", "://me:hidden@") + "?signature=hidden"
        done = run_here("graft", "bad.pt", "--from", secret, "--format", "json", cwd=tmp_path)
    assert done.returncode == 0 and b"hidden" not in done.stdout + done.stderr


def test_a_sound_file_costs_no_more_than_headers(saved, tmp_path):
    """Nothing is damaged, so nothing is fetched."""
    (tmp_path / "fine.pt").write_bytes(saved[".pt"])
    with serving(files={"good.pt": saved[".pt"]}) as server:
        report = ckptdoctor.graft(tmp_path / "fine.pt", server.url("good.pt"))
        assert server.sent < 400 << 10 and not report.changes and report.likeness.alike


def test_a_seal_finds_what_has_no_checksum(saved, tmp_path):
    """One bit of a safetensors file: only the seal next to it knows that it changed, and in which tensor."""
    whole = saved[".safetensors"]
    path = tmp_path / "model.safetensors"
    path.write_bytes(whole)
    ckptdoctor.seal(path)
    data = bytearray(whole)
    data[data.index(WEIGHTS["layer5.weight"].numpy().tobytes()) + 77] ^= 4
    path.write_bytes(data)
    with serving(files={"good.safetensors": whole}) as server:
        report = ckptdoctor.graft(path, server.url("good.safetensors"), tmp_path / "out.safetensors")
        assert server.sent < SIZE + (70 << 10)
    assert [(each.path, each.trouble) for each in report.grafted] == [(("layer5.weight",), "is not as it was sealed")]
    assert (tmp_path / "out.safetensors").read_bytes() == whole and report.published.endswith(".seal.json")
