"""One fault at every system call in turn: nothing may be lost, and nothing may be left behind."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from ckptdoctor.errors import WriteError
from ckptdoctor.writing import publish
from tests.writing.helpers import Case, leftovers, make_case

CALLS = (
    *("open", "fstat", "lstat", "posix_fallocate", "copy_file_range", "pread", "pwrite", "fsync", "fdatasync"),
    *("fchown", "fchmod", "listxattr", "getxattr", "setxattr", "link", "replace", "ftruncate", "statvfs"),
)


class Fault:
    """Makes the call ``name`` fail, the one numbered ``at``: threads make theirs in any order, but as many."""

    def __init__(self, monkeypatch, number: int, name: str, at: int) -> None:
        self.count = 0
        self.failed = False
        self._lock = threading.Lock()
        monkeypatch.setattr(os, name, self._wrapped(getattr(os, name), number, at))

    def _wrapped(self, real, number: int, at: int):
        def call(*arguments, **named):
            with self._lock:
                self.count += 1
                fails = self.count == at
            if fails:
                self.failed = True
                raise OSError(number, os.strerror(number))
            return real(*arguments, **named)

        return call


def attempt(case: Case, output: Path, fault: tuple[int, str, int], force: bool) -> tuple[bool, bool]:
    """Whether a call failed (else there are fewer of it), and whether the output was published all the same."""
    with pytest.MonkeyPatch.context() as patch:
        made = Fault(patch, *fault)
        try:
            publish(case.recipe, str(output), force=force)
        except WriteError:
            return made.failed, False
    return made.failed, True


@pytest.mark.parametrize(
    ("number", "meanwhile"),
    [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EACCES, False)],
)
@pytest.mark.parametrize("target", ["new", "existing", "original"])
def test_a_fault_at_any_call_loses_nothing(tmp_path: Path, monkeypatch, number: int, meanwhile: bool, target: str):
    """The original and an existing output stay as they are, or the complete new file is there; no temporary file.

    Also where a second thread compares ``meanwhile``, as it does with long outputs.
    """
    if meanwhile:
        monkeypatch.setattr("ckptdoctor.writing.comparing.WORTH_A_THREAD", 0)
    met = set()
    for name in CALLS:
        for at in range(1, 1000):
            folder = tmp_path / name / str(at)
            folder.mkdir(parents=True)
            case = make_case(folder, generated=not meanwhile)
            before = case.source.read_bytes()
            output = case.source if target == "original" else folder / "out.pt"
            if target == "existing":
                output.write_bytes(b"old")
            old = output.read_bytes() if output.exists() else None
            failed, published = attempt(case, output, (number, name, at), force=target != "new")
            if not failed:
                assert published
                break
            met.add(name)
            now = output.read_bytes() if output.exists() else None
            assert now == case.wanted if published else now in (old, case.wanted)
            assert target == "original" or case.source_is_intact(before)
            assert leftovers(folder) == []
    assert {"open", "pread", "pwrite", "fsync", "copy_file_range", "fchmod"} <= met


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_fault_of_the_background_sync_is_not_lost(tmp_path: Path, monkeypatch, number: int):
    """A write-back error is reported once, and perhaps to the background thread: the output must not be published."""

    def failing(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    case = make_case(tmp_path, scale=150)
    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(WriteError):
        publish(case.recipe, str(tmp_path / "out"))
    assert os.listdir(tmp_path) == ["source.pt"]
