"""What a conversion and a salvage name as the next step is true: torch itself is asked."""

from __future__ import annotations

import shlex
import shutil
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest
import safetensors.torch
import torch

import ckptdoctor
from tests.commands import ROOT, run_here
from tests.formats.torch.zip.forge import assembled, parts_of, saved

SICK = ROOT / "sample_ckpts" / "sick"
CODES = ("D60", "P20", "C10", "F011", "N401-training", "A706")
NAMES = [each.name for each in sorted(SICK.iterdir()) if each.is_file() and each.name.startswith(CODES)]
LOADS = {"torch": torch, "ckptdoctor": ckptdoctor, "safetensors": safetensors}


def proven(folder, said):
    """Do what the last line says: load the file, or repair it and load that."""
    step = said.strip().splitlines()[-1].removeprefix("next · ")
    if step.startswith("nothing is known"):
        written = next(line.split()[1] for line in said.splitlines() if line.startswith("wrote"))
        with pytest.raises((RuntimeError, ValueError, EOFError, OSError)):
            torch.load(folder / written)
    elif step.startswith("ckptdoctor fix"):
        done = run_here(*shlex.split(step)[1:], "-o", "repaired.pt", cwd=folder)
        assert done.returncode == 0, done.stdout
        proven(folder, done.stdout.decode())
    else:
        eval(step, dict(LOADS))


@pytest.mark.parametrize("name", NAMES)
def test_after_a_conversion(tmp_path, monkeypatch, name):
    """A file of torch keeps its device tags and objects, and with them what torch says about them."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(SICK / name, name)
    done = run_here("convert", name, "out.pt", cwd=tmp_path)
    if Path("out.pt").exists():
        proven(tmp_path, done.stdout.decode())
    else:
        assert done.returncode


@pytest.mark.parametrize("name", [each for each in NAMES if each.endswith(".pt")])
def test_after_a_salvage(tmp_path, monkeypatch, name):
    """What is whole of a file that was cut off is kept with these, too."""
    monkeypatch.chdir(tmp_path)
    data = (SICK / name).read_bytes()
    Path(name).write_bytes(data[: len(data) * 3 // 4])
    done = run_here("salvage", name, "-o", "out.pt", cwd=tmp_path)
    if Path("out.pt").exists():
        proven(tmp_path, done.stdout.decode())
    else:
        assert done.returncode


def odd(kind, contents, path):
    """An archive that torch does not write: with compressed records, of another byte order, or behind other bytes."""
    torch.save(contents, path)
    data = path.read_bytes()
    with ZipFile(BytesIO(data)) as old, path.open("wb") as file:
        if kind == "behind other bytes":
            file.write(b"#!/bin/sh\n")
        with ZipFile(file, "a", ZIP_DEFLATED if kind == "compressed" else ZIP_STORED) as new:
            for name in old.namelist():
                record = old.read(name)
                if kind == "big-endian" and "/data/" in name:
                    record = b"".join([record[at : at + 4][::-1] for at in range(0, len(record), 4)])
                new.writestr(name, b"big" if kind == "big-endian" and name.endswith("byteorder") else record)


@pytest.mark.parametrize("kind", ["compressed", "big-endian", "behind other bytes"])
def test_an_unusual_archive_is_laid_out_as_torch_does_it(tmp_path, kind):
    """Nothing is wrong with it any more, and the views of one storage are that again."""
    base = torch.arange(100.0)
    contents = {
        "model": {"w": base[3:9], "t": base.view(10, 10).t(), "p": torch.nn.Parameter(torch.ones(2))},
        "epoch": 3,
    }
    odd(kind, contents, tmp_path / "odd.pt")
    assert "P207" in str(run_here("check", "odd.pt", cwd=tmp_path).stdout) or kind == "big-endian"
    done = run_here("convert", "odd.pt", "out.pt", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run_here("check", "--format", "concise", "out.pt", cwd=tmp_path).stdout.count(b" warning ") == 0
    found = torch.load(tmp_path / "out.pt", mmap=True)
    assert found["epoch"] == 3 and all(torch.equal(found["model"][key], contents["model"][key]) for key in "wtp")
    assert found["model"]["w"].untyped_storage().data_ptr() == found["model"]["t"].untyped_storage().data_ptr()


def test_bytes_around_a_file_are_left_out_by_what_the_refusal_names(tmp_path):
    """Of those before an archive by a conversion, of those behind the last tensor by two more options."""
    odd("behind other bytes", {"w": torch.ones(2)}, tmp_path / "odd.pt")
    said = run_here("fix", "odd.pt", "--rename", "^=x.", cwd=tmp_path).stdout.decode()
    _, command = said.strip().split("Convert it first: ckptdoctor ")
    assert run_here(*shlex.split(command), cwd=tmp_path).returncode == 0
    assert run_here("fix", "odd.safetensors", "--rename", "^=x.", "-o", "new.safetensors", cwd=tmp_path).returncode == 0
    shutil.copy(SICK / "F008-trailing-bytes.safetensors", tmp_path / "long.safetensors")
    command = ("fix", "long.safetensors", "--rename", "^=x.", "-o", "cut.safetensors")
    said = run_here(*command, cwd=tmp_path).stdout.decode()
    _, _, options = said.partition(" Add ")
    assert run_here(*command, *shlex.split(options)[:3], cwd=tmp_path).returncode == 0
    for name in ("new.safetensors", "cut.safetensors"):
        assert all(key.startswith("x.") for key in safetensors.torch.load_file(tmp_path / name))


@pytest.mark.parametrize("moved", [False, True], ids=["offsets count it", "offsets do not"])
def test_what_is_before_an_archive_is_left_out_by_a_salvage(tmp_path, moved):
    """Whether or not the offsets in the archive count it; and that is said."""
    odd("behind other bytes", {"w": torch.ones(2)}, tmp_path / "x.pt")
    if moved:
        torch.save({"w": torch.ones(2)}, tmp_path / "x.pt")
        (tmp_path / "x.pt").write_bytes(b"#!/bin/sh\n" + (tmp_path / "x.pt").read_bytes())
    done = run_here("salvage", "x.pt", "-o", "out.pt", cwd=tmp_path)
    assert done.returncode == 0 and "note · 10 bytes before the archive are left out" in done.stdout.decode()
    assert torch.equal(torch.load(tmp_path / "out.pt")["w"], torch.ones(2))


@pytest.mark.parametrize("command", [("convert", "x.pt", "out.pt"), ("salvage", "x.pt", "-o", "out.pt")], ids=str)
def test_a_record_of_torch_that_is_not_text_is_in_no_copy(tmp_path, command):
    """torch asks for it first, and does without it."""
    torch.save({"w": torch.ones(2)}, tmp_path / "x.pt")
    data = bytearray((tmp_path / "x.pt").read_bytes())
    begin = data.index(b"serialization_id")
    data[next(at for at in range(begin, len(data)) if data[at : at + 8].isdigit())] ^= 0x80
    (tmp_path / "x.pt").write_bytes(data)
    with pytest.raises(UnicodeDecodeError):
        torch.load(tmp_path / "x.pt")
    assert "the serialization_id record is not text" in run_here("check", "x.pt", cwd=tmp_path).stdout.decode()
    done = run_here(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert torch.equal(torch.load(tmp_path / "out.pt")["w"], torch.ones(2))


@pytest.mark.parametrize("verb", ["convert", "salvage"])
def test_of_an_archive_on_which_readers_disagree_something_is_written_by_what_the_refusal_names(tmp_path, verb):
    """What torch reads of it, or what is intact where torch rejects it."""
    parts = parts_of(saved({"w": torch.ones(2)}))
    parts.insert(3, parts[3])  # two records of one name
    (tmp_path / "x.pt").write_bytes(assembled(parts))
    if verb == "salvage":
        torch.save({"w": torch.ones(2)}, tmp_path / "x.pt")
        (tmp_path / "x.pt").write_bytes(b"#!/bin/sh\n" + (tmp_path / "x.pt").read_bytes())
    said = run_here("fix", "x.pt", "--rename", "^=x.", cwd=tmp_path).stdout.decode()
    command = shlex.split(said[said.index("ckptdoctor ") :])[1:]
    assert said.startswith("refused · ") and command[0] == verb
    done = run_here(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    written = "x.safetensors" if verb == "convert" else "x.salvaged.pt"
    load = safetensors.torch.load_file if verb == "convert" else torch.load
    assert torch.equal(load(tmp_path / written)["w"], torch.ones(2))


@pytest.mark.parametrize("name", ["F006-truncated-legacy.pt", "two.pt"])
def test_what_is_intact_of_a_damaged_file_is_recovered_by_what_the_refusal_names(tmp_path, name):
    """In either of torch's formats; where nothing is, that command would be refused."""
    torch.save({"v": torch.ones(2), "w": torch.ones(2)}, tmp_path / "two.pt")
    (tmp_path / "two.pt").write_bytes((tmp_path / "two.pt").read_bytes().replace(b"/data/1", b"/data/7"))
    if name.startswith("F"):
        shutil.copy(SICK / name, tmp_path)
    shutil.copy(SICK / "F011-storage-size-mismatch.pt", tmp_path / "none.pt")
    assert b"Take another copy" in run_here("fix", "none.pt", "--rename", "^=x.", cwd=tmp_path).stdout
    said = run_here("fix", name, "--rename", "^=x.", cwd=tmp_path).stdout.decode()
    assert said.startswith("refused · A copy would be as damaged as the original")
    assert run_here(*shlex.split(said[said.index("ckptdoctor ") :])[1:], cwd=tmp_path).returncode == 1
    assert torch.load(next(tmp_path.glob("*.salvaged.pt")))
