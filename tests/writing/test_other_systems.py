"""Writing where the system has fewer calls than Linux, and as Windows does it: an open file keeps its name."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.writing import Part, publish, publish_together, unfinished
from tests.writing.helpers import leftovers, make_case

MISSING = (
    *("pread", "pwrite", "posix_fallocate", "copy_file_range", "fdatasync"),
    *("fchown", "fchmod", "listxattr", "getxattr", "setxattr", "statvfs"),
)


def is_open(path) -> bool:
    """Whether this process has the file open."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            if os.path.samefile(f"/proc/self/fd/{entry}", path):
                return True
        except OSError:  # closed meanwhile, a socket, or nothing has this name yet
            continue
    return False


@pytest.fixture
def other_system(monkeypatch):
    """The calls of Linux are missing, and a file that is open is neither renamed, nor replaced, nor removed."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("the system does not tell which files are open")
    for name in MISSING:
        monkeypatch.delattr(os, name, raising=False)

    def closed_only(call):
        def checked(*paths, **named):
            if any(map(is_open, paths)):
                raise PermissionError(13, "The file is in use", str(paths[0]))
            return call(*paths, **named)

        return checked

    monkeypatch.setattr(unfinished, "LOCKS", False)
    for name in ("replace", "rename", "unlink", "remove"):
        monkeypatch.setattr(os, name, closed_only(getattr(os, name)))


@pytest.mark.parametrize("target", ["new", "original"])
def test_a_file_is_written(other_system, tmp_path: Path, target: str):
    """A new file and a replaced original have the bytes that were meant, and nothing else is left."""
    case = make_case(tmp_path)
    output = case.source if target == "original" else tmp_path / "out.pt"
    publish(case.recipe, str(output), force=target == "original")
    assert output.read_bytes() == case.wanted
    assert leftovers(tmp_path) == []


def test_a_long_file_is_compared_while_it_is_written(other_system, tmp_path: Path, monkeypatch):
    """By threads that move one position in it, the one to write there and the other to read."""

    def moved(*arguments):
        at = move(*arguments)
        time.sleep(0.001)  # long enough for the other one
        return at

    move = os.lseek
    monkeypatch.setattr(os, "lseek", moved)
    case = make_case(tmp_path, scale=150, generated=False)
    publish(case.recipe, str(tmp_path / "out.pt"))
    assert (tmp_path / "out.pt").read_bytes() == case.wanted


def test_files_are_written_together(other_system, tmp_path: Path):
    """All get their names, and those that are there are replaced."""
    case = make_case(tmp_path)
    outputs = [tmp_path / "one.pt", tmp_path / "two.pt"]
    outputs[1].write_bytes(b"old")
    publish_together([Part(case.recipe, str(path)) for path in outputs], force=True)
    assert [path.read_bytes() for path in outputs] == [case.wanted, case.wanted]
    assert leftovers(tmp_path) == []


def test_threads_read_one_file(other_system, tmp_path: Path):
    """Each gets the bytes that it asked for, though all of them move one position."""
    data = b"".join(number.to_bytes(4, "little") for number in range(20_000))
    (tmp_path / "file").write_bytes(data)
    wrong = []
    with FileSource(tmp_path / "file") as source:

        def read(first: int) -> None:
            for number in range(first, 20_000, 7):
                if source.read(4 * number, 4) != number.to_bytes(4, "little"):
                    wrong.append(number)

        threads = [threading.Thread(target=read, args=(first,)) for first in range(7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
