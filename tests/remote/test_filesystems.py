"""Files that fsspec reaches: a real server that speaks S3, in a process of its own, and what is in memory."""

from __future__ import annotations

import sys

import pytest
import torch
from fsspec.exceptions import FSTimeoutError
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor.errors import UnreadableError, UsageError
from ckptdoctor.remote import filesystems, open_remote
from tests.runs.generated import KINDS, Run, Saved, truncated
from tests.s3 import served

STATE = {f"layers.{index:04}.weight": torch.full((10_000,), float(index)) for index in range(1_000)}


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    """The server, with 40 MB of 1,000 tensors in either format; a function that tells what it was asked for."""
    folder = tmp_path_factory.mktemp("s3")
    with served(folder) as asked:
        _upload(folder)
        yield asked


def _upload(folder):
    import fsspec

    torch.save(STATE, folder / "a.pt")
    save_file(STATE, folder / "a.safetensors", {"format": "pt"})
    system = fsspec.filesystem("s3")
    system.mkdir("weights")
    for name in ("a.pt", "a.safetensors"):
        system.put(str(folder / name), f"weights/run/{name}")
    system.chmod("weights/run/a.safetensors", "public-read")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_headers_take_few_requests(name, s3):
    """The size and the parts that hold headers: at most 6 requests, and less than 2 % of 40 MB."""
    before = s3().count("HTTP/1.1")
    report = ckptdoctor.check(f"s3://weights/run/{name}")
    assert report.error is None and report.findings == ()
    assert [tensor.key for tensor in report.checkpoint.tensors] == list(STATE)
    assert s3().count("HTTP/1.1") - before <= 6 and report.bytes_read < 800_000


@pytest.fixture
def counted(monkeypatch):
    """What is asked of a file system that remembers nothing, and of which files."""
    import fsspec

    system, asked = fsspec.filesystem("memory"), []
    for name in ("ls", "info", "cat_file"):
        real = getattr(type(system), name)
        monkeypatch.setattr(
            type(system),
            name,
            lambda self, path, *rest, name=name, real=real, **options: (
                asked.append((name, path.rpartition("/")[2])),
                real(self, path, *rest, **options),
            )[1],
        )
    yield system, asked
    system.rm("/counted", recursive=True)


def test_what_a_listing_has_said_is_not_asked_again(counted, tmp_path):
    """Of a folder one listing tells every size, and of a run that it is no file."""
    system, asked = counted
    run = Run(tmp_path / "run", "trainer")
    KINDS["trainer"](run, 100, None)
    system.put(str(run.folder), "/counted", recursive=True)
    files = [each.name for each in tmp_path.glob("run/*/*") if each.suffix not in (".json", ".txt")]
    asked.clear()
    report = ckptdoctor.check("memory://counted/checkpoint-100/")
    assert report.error is None and len(files) > 2
    assert asked[0] == ("ls", "checkpoint-100") and {what for what, _ in asked[1:]} == {"cat_file"}
    asked.clear()
    assert ckptdoctor.latest("memory://counted").path == "memory://counted/checkpoint-100"
    assert [name for what, name in asked if what == "ls"].count("counted") == 1


@pytest.mark.slow
def test_values_are_loaded(s3):
    """As they were saved."""
    loaded = ckptdoctor.load("s3://weights/run/a.safetensors")
    assert all(torch.equal(loaded[key], tensor) for key, tensor in STATE.items())


@pytest.mark.slow
def test_what_is_not_there_is_told(s3):
    """A file, a bucket; of a folder, which files could be meant."""
    assert "s3://weights/none.pt does not exist" in ckptdoctor.check("s3://weights/none.pt").error
    assert "does not exist" in ckptdoctor.check("s3://nobody/a.pt").error
    error = ckptdoctor.check("s3://weights/run").error
    assert "is a folder" in error and "s3://weights/run/a.pt or s3://weights/run/a.safetensors" in error


@pytest.mark.slow
def test_public_files_need_no_credentials(s3, monkeypatch):
    """Without any the file is asked for as anybody may."""
    import s3fs

    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3fs.S3FileSystem.clear_instance_cache()
    assert ckptdoctor.check("s3://weights/run/a.safetensors").error is None
    assert "requires credentials" in ckptdoctor.check("s3://weights/run/a.pt").error


@pytest.mark.slow
def test_the_newest_checkpoint_of_a_run(s3, tmp_path):
    """Folders of a bucket are listed and read where they are, in few requests."""
    import fsspec
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()  # one without credentials is left from before
    run = Run(tmp_path, "trainer")
    for step in (100, 200, 300):
        run.saved.append(Saved(KINDS["trainer"](run, step, None), step))
    truncated(run, run.saved[-1], None)
    fsspec.filesystem("s3").put(f"{tmp_path}/", "weights/runs/x/", recursive=True)
    before = s3().count("HTTP/1.1")
    found = ckptdoctor.latest("s3://weights/runs/x", resumable=True)
    assert (found.path, found.step, found.opened) == ("s3://weights/runs/x/checkpoint-200", 200, 2)
    assert "the file ends after" in found.passed_over[0].reason
    assert s3().count("HTTP/1.1") - before <= 60
    assert ckptdoctor.check(f"{found.path}/").error is None
    with pytest.raises(UnreadableError, match="does not exist"):
        ckptdoctor.latest("s3://weights/nothing/here")


def test_whatever_fsspec_has_a_file_system_for_is_read(tmp_path):
    """Its file system in memory, for one."""
    import fsspec

    torch.save({"module.w": torch.ones(3)}, tmp_path / "m.pt")
    fsspec.filesystem("memory").pipe("/models/m.pt", (tmp_path / "m.pt").read_bytes())
    report = ckptdoctor.check("memory://models/m.pt")
    assert report.error is None and [finding.code for finding in report.findings] == ["N401"]
    assert torch.equal(ckptdoctor.load("memory://models/m.pt")["module.w"], torch.ones(3))


def test_a_protocol_that_nobody_knows_is_told():
    """By its name."""
    assert 'cannot read "clay://" addresses' in ckptdoctor.check("clay://tablet/m.pt").error


def test_a_package_that_is_missing_is_named(monkeypatch):
    """With the command that installs it, or in fsspec's words where it is none of the extra's."""
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    monkeypatch.setitem(sys.modules, "adlfs", None)
    with pytest.raises(UsageError, match=r"pip install 'ckptdoctor\[remote\]'"):
        open_remote("gs://weights/a.pt")
    with pytest.raises(UsageError, match=r"adlfs"):
        open_remote("abfs://weights/a.pt")


class _Odd:
    """A file system that answers as it is told."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def _next(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def info(self, path):
        return self._next()

    def cat_file(self, path, start, end):
        return self._next()


def _opened(monkeypatch, *answers):
    monkeypatch.setattr(filesystems, "_DELAYS", (0.0, 0.0))
    monkeypatch.setattr(filesystems.FilesystemFile, "_connected", lambda *_, **__: (_Odd(*answers), "m.pt"))
    return filesystems.FilesystemFile("odd://m.pt", "odd://m.pt")


def test_broken_connections_are_tried_again(monkeypatch):
    """A few times; then the reason is told."""
    file = _opened(monkeypatch, ConnectionResetError(), {"size": 10}, TimeoutError(), FSTimeoutError(), b"abc")
    assert file.size == 10 and file.fetch(0, 3) == b"abc"
    with pytest.raises(UnreadableError, match="cannot be read: gone"):
        _opened(monkeypatch, *[ConnectionResetError("gone")] * 3)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([{"size": None}], "report its size"),
        ([PermissionError()], "or different ones"),
        ([RuntimeError("no\nluck")], "no luck"),
        ([{"size": 10}, b"ab"], "3 bytes were requested but 2 arrived"),
    ],
)
def test_other_answers_are_told(answers, words, monkeypatch):
    """In one sentence."""
    with pytest.raises(UnreadableError, match=words):
        _opened(monkeypatch, *answers).fetch(0, 3)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            'Could not connect to the endpoint URL: "https://b.s3.amazonaws.com/m.pt"',
            "Could not connect to the endpoint URL",
        ),
        ("odd://m.pt is gone.", "is gone"),
        ("", "OSError"),
    ],
)
def test_the_address_is_named_once(said, told, monkeypatch):
    """Whatever form of it the library's own words have, with one full stop at the end."""
    with pytest.raises(UnreadableError) as caught:
        _opened(monkeypatch, OSError(said))
    assert caught.value.message == f"odd://m.pt cannot be read: {told}."
