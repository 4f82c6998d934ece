"""What killed writes leave: who owns it is told by a lock, the next write removes it, and ``check`` says so before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ckptdoctor.cli import main
from ckptdoctor.rules.examples import T
from ckptdoctor.writing import publish
from ckptdoctor.writing.fresh import write_fresh
from ckptdoctor.writing.unfinished import leftovers, sweep
from tests import builders
from tests.writing.helpers import make_case

pytest.importorskip("fcntl")

# Writes a file, or a folder, until it is killed
WRITER = """
import sys
from ckptdoctor.writing.folder import publish_folder
from ckptdoctor.writing import Copy, Generated, Part, Recipe, publish

def slowly():
    yield b"x"
    print("writing", flush=True)
    sys.stdin.read()

kind, source, output = sys.argv[1:]
recipe = Recipe(source, (Copy(0, 100), Generated(2, slowly)))
if kind == "file":
    publish(recipe, output)
else:
    parts = [Part(Recipe(source, (Copy(0, 100),)), output + "/first.pt"), Part(recipe, output + "/second.pt")]
    publish_folder(parts, output, force=False, identity=None)
"""


def writer(kind: str, source: Path, output: Path) -> subprocess.Popen[bytes]:
    """A process that is writing."""
    arguments = [sys.executable, "-c", WRITER, kind, str(source), str(output)]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert process.stdout is not None and process.stdout.readline() == b"writing\n"
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    """As nothing can be cleaned up after."""
    process.send_signal(signal.SIGKILL)
    process.communicate()


def names(folder: Path) -> set[str]:
    return set(os.listdir(folder))


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_living_writer_owns_what_it_writes_and_a_killed_one_does_not(tmp_path: Path, kind: str):
    """The next write of any kind to the same folder leaves the first alone, and removes it after a kill."""
    case = make_case(tmp_path)
    process = writer(kind, case.source, tmp_path / "big.pt")
    try:
        (unfinished,) = names(tmp_path) - {"source.pt"}
        publish(case.recipe, str(tmp_path / "other.pt"))
        write_fresh(b"text", str(tmp_path / "page"), b"")
        assert list(leftovers(str(tmp_path))) == []
        assert names(tmp_path) == {"source.pt", "other.pt", "page", unfinished}
    finally:
        kill(process)
    assert list(leftovers(str(tmp_path))) == [str(tmp_path / unfinished)]
    publish(case.recipe, str(tmp_path / "out.pt"))
    assert names(tmp_path) == {"source.pt", "other.pt", "page", "out.pt"}


def test_a_page_removes_them_as_well(tmp_path: Path):
    """Whatever is written."""
    case = make_case(tmp_path)
    kill(writer("file", case.source, tmp_path / "big.pt"))
    write_fresh(b"text", str(tmp_path / "page"), b"")
    assert names(tmp_path) == {"source.pt", "page"}


def test_what_only_looks_similar_stays(tmp_path: Path):
    """Other names, links, pipes and folders with folders in them are nothing that a write has left."""
    case = make_case(tmp_path)
    similar = [
        *("a.0123456789ab.ckptdoctor-tmp.pt", ".a.0123456789a.ckptdoctor-tmp.pt", ".a.0123456789ab.ckptdoctor-tmp2"),
        *(".a.0123456789ab.ckptdoctor-tmp.tar.gz", ".0123456789ab.ckptdoctor-tmp.pt", ".a.0123456789AB.ckptdoctor-tmp"),
    ]
    for name in similar:
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / ".link.0123456789ab.ckptdoctor-tmp.pt").symlink_to(case.source)
    os.mkfifo(tmp_path / ".pipe.0123456789ab.ckptdoctor-tmp.pt")
    (tmp_path / ".deep.0123456789ab.ckptdoctor-tmp" / "mine").mkdir(parents=True)
    (tmp_path / ".deep.0123456789ab.ckptdoctor-tmp" / "mine" / "file").write_bytes(b"mine")
    (tmp_path / ".deep.0123456789ab.ckptdoctor-tmp" / "weights.pt").write_bytes(b"mine")
    before = names(tmp_path)
    sweep(str(tmp_path))
    assert names(tmp_path) == before
    assert list(leftovers(str(tmp_path))) == []
    assert names(tmp_path / ".deep.0123456789ab.ckptdoctor-tmp") == {"mine", "weights.pt"}


def test_the_second_name_of_a_published_file_goes_alone(tmp_path: Path):
    """A kill between giving the name and taking the temporary one away leaves two names of one file."""
    out = tmp_path / "out.pt"
    out.write_bytes(b"whole")
    os.link(out, tmp_path / ".out.0123456789ab.ckptdoctor-tmp.pt")
    sweep(str(tmp_path))
    assert names(tmp_path) == {"out.pt"} and out.read_bytes() == b"whole"


def test_check_of_a_folder_says_so(tmp_path: Path, capsys, monkeypatch):
    """In words and as data; a write that is going on is none of its business."""
    builders.save({"w": T((3,))}, tmp_path / "model.pt")
    monkeypatch.chdir(tmp_path)
    process = writer("file", tmp_path / "model.pt", tmp_path / "big.pt")
    (unfinished,) = names(tmp_path) - {"model.pt"}
    assert main.run(["check", "."]) == 0
    assert unfinished not in capsys.readouterr().out
    kill(process)
    for style in ("full", "concise", "github", "markdown", "sarif"):
        assert main.run(["check", ".", "--format", style]) == 0
        out = capsys.readouterr().out.replace("\\", "")
        assert unfinished in out and "Left by a write that was killed" in out
    assert main.run(["check", ".", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["leftovers"]
    assert told == [{"path": f"./{unfinished}", "bytes": 102}]
    os.unlink("model.pt")
    assert main.run(["check", "."]) == 2
    assert unfinished in capsys.readouterr().err
