"""Paths that cannot be read or written: one sentence says what is wrong, where, and what to do."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests import commands
from tests.broken_shards import folder, name
from tests.commands import as_others_may, with_modes
from tests.writing.helpers import leftovers

_LIMIT = 20_000  # bytes that a file may have where there is no more room


def _limited() -> None:
    """Files cannot grow beyond the limit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LIMIT, _LIMIT))


def run(*arguments: str, cwd: Path, given: bytes = b"", before: Callable[[], None] | None = None) -> tuple[int, str]:
    """The exit status of a command and all that it said; ``before`` it starts, its process may give something up."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(cwd)}
    if before is None:
        done = commands.run(*arguments, cwd=cwd, stdin=given, env=env)
    else:
        done = commands.run_anew(*arguments, cwd=cwd, stdin=given, env=env, preexec_fn=before)
    said = (done.stdout + done.stderr).decode()
    assert "itself failed" not in said
    assert leftovers(cwd) == []
    return done.returncode, said


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a checkpoint of 40 kB, a link to it, an empty file, and a folder with a file of no known kind."""
    torch.save({"module.w": torch.ones(100, 100)}, tmp_path / "m.pt")
    (tmp_path / "link.pt").symlink_to("m.pt")
    (tmp_path / "empty.pt").touch()
    (tmp_path / "some").mkdir()
    save_file({"w": torch.ones(2)}, tmp_path / "some" / "w.safetensors")
    return tmp_path


_MAKE = "Create it first, or give another."


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "fix empty.pt",
            "empty.pt is an empty file. Download it again, or use the checkpoint that was saved before it.",
        ),
        ("fix some", "Open it: ckptdoctor some/w.safetensors"),
        ("fix m.pt -o link.pt", "link.pt is the original itself; give another output path"),
        ("fix m.pt -o no/x/", f"no/x/ cannot be written: there is no folder {{here}}/no. {_MAKE}"),
        (
            "fix m.pt -o no/x.safetensors",
            f"no/x.safetensors cannot be written: there is no folder {{here}}/no. {_MAKE}",
        ),
        ("fix m.pt -o no/x.pt", f"no/x.pt cannot be written: there is no folder {{here}}/no. {_MAKE}"),
        ("convert m.pt no/x --shard-size 9kB", f"no/x cannot be written: there is no folder {{here}}/no. {_MAKE}"),
    ],
)
def test_what_is_not_there(place: Path, arguments: str, said: str):
    """Exit status 1, and nothing is written."""
    before = sorted(os.listdir(place))
    status, text = run(*arguments.split(), cwd=place)
    assert (status, said.format(here=place) in text) == (1, True), text
    assert sorted(os.listdir(place)) == before


@with_modes
def test_a_folder_that_is_not_ours_to_read(place: Path):
    """Nothing is said of what it holds."""
    (place / "some").chmod(0)
    status, text = run("check", "some", cwd=place, before=as_others_may)
    (place / "some").chmod(0o700)
    why = "Permission denied. The owner of it, or of a folder that it is in, can grant read access."
    assert (status, text) == (2, f"error: some cannot be listed: {why}\n")


@with_modes
def test_a_file_that_is_not_ours_to_read(place: Path):
    """Who can help is said."""
    (place / "m.pt").chmod(0)
    status, text = run("check", "m.pt", cwd=place, before=as_others_may)
    assert (status, text.startswith("error: m.pt cannot be opened: Permission denied. The owner of it, ")) == (2, True)


def test_a_disk_without_room(place: Path):
    """Whatever is written: the output, a folder of shards by its own name, standard input, what was packed."""
    most = "bytes exceed the limit for a file here. Give another output path"
    assert most in run("fix", "m.pt", cwd=place, before=_limited)[1]
    status, text = run("convert", "m.pt", "shards", "--shard-size", "1MB", cwd=place, before=_limited)
    assert status == 1
    assert text.startswith("refused · shards/model.safetensors cannot be written: ")
    status, text = run("check", "-", cwd=place, given=(place / "m.pt").read_bytes(), before=_limited)
    assert status == 2
    assert text.startswith(f"error: Standard input could not be kept in {place}: File too large. Set TMPDIR to")
    subprocess.run(["gzip", "-k", "m.pt"], cwd=place, check=True)
    status, text = run("check", "m.pt.gz", cwd=place, before=_limited)
    assert status == 2
    assert text.startswith("error: Unpacking stopped in ")
    assert "or set TMPDIR to a folder with more space" in text


@pytest.mark.parametrize("name", ["new\nline.pt", "st*r.pt"])
def test_odd_names(place: Path, name: str):
    """A file of such a name is examined and repaired as any other, and not taken for a pattern."""
    (place / "m.pt").rename(place / name)
    (place / "stair.pt").touch()
    status, text = run("check", name, cwd=place)
    assert status == 1
    assert "empty" not in text
    command = next(line for line in text.splitlines() if "repair, safe" in line).split("ckptdoctor ")[1]
    done = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -m ckptdoctor {command}'], cwd=place, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(torch.load(place / name.replace(".pt", ".fixed.pt"))) == ["w"]


@with_modes
def test_a_shard_that_is_not_ours_to_read(place: Path):
    """Its name is said once, with the reason."""
    folder(place / "shards")
    shard = place / "shards" / name(2)
    shard.chmod(0)
    status, text = run("check", "shards", cwd=place, before=as_others_may)
    assert status == 1
    assert f"{name(2)}, with 8 tensors of the index, cannot be opened: Permission denied. The owner of it" in text
    status, text = run("salvage", "shards", cwd=place, before=as_others_may)
    assert status == 1
    assert f"{name(2)} cannot be opened: Permission denied. The owner of it" in text


@pytest.fixture
def closed(place: Path) -> Path:
    """A folder with a file of parity below, sealed; of the folder below, others may not list what is in it."""
    pytest.importorskip("zfec")
    below = place / "run" / "below"
    below.mkdir(parents=True)
    (place / "m.pt").rename(place / "run" / "m.pt")
    save_file({"w": torch.ones(2)}, below / "w.safetensors")
    assert commands.run_here("seal", "run", "--parity", "1%", cwd=place).returncode == 0
    return below


_WHY = "Permission denied. The owner of it, or of a folder that it is in, can grant read access."


@with_modes
@pytest.mark.parametrize("command", ["check", "verify", "rebuild"])
def test_a_folder_below_that_is_not_ours_to_list(closed: Path, command: str):
    """It is named with the reason, the status is 2, and nothing in it is called missing or healthy."""
    closed.chmod(0)
    status, text = run(command, "run", cwd=closed.parents[1], before=as_others_may)
    closed.chmod(0o700)
    assert (status, "missing" in text) == (2, False), text
    assert text.count(_WHY) == 1
    assert "run/below" in text
    if command == "check":
        assert f"error: run/below cannot be listed: {_WHY}\n" in text
        assert "run/m.pt · " in text


@with_modes
def test_json_has_the_folder_below_that_is_not_ours_to_list(closed: Path):
    """In JSON the folder has an entry of its own, with its error."""
    closed.chmod(0)
    status, text = run("check", "run", "--format", "json", cwd=closed.parents[1], before=as_others_may)
    closed.chmod(0o700)
    assert status == 2
    assert f'"error": "run/below cannot be listed: {_WHY}"' in text


@with_modes
@pytest.mark.parametrize("command", ["check", "verify", "rebuild"])
def test_a_folder_below_of_which_only_the_names_are_ours_to_read(closed: Path, command: str):
    """What is in it cannot be opened, which is not the same as missing."""
    closed.chmod(0o444)
    status, text = run(command, "run", cwd=closed.parents[1], before=as_others_may)
    closed.chmod(0o700)
    assert (status == 0, "missing" in text, f"w.safetensors: it cannot be opened: {_WHY}" in text) == (
        False,
        False,
        command == "rebuild",
    ), text
    assert f"cannot be opened: {_WHY}" in text


def test_a_link_that_leads_nowhere_is_not_passed_over(place: Path):
    """A checkpoint by its name that cannot be opened makes the status 2, also where its folder was named."""
    (place / "some" / "gone.pt").symlink_to("removed.pt")
    status, text = run("check", "some", cwd=place)
    assert status == 2
    assert "error: some/gone.pt cannot be opened: No such file or directory." in text
