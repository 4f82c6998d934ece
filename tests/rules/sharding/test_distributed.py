"""What is advised of distributed checkpoints and of other containers that are only read: commands that work."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

import ckptdoctor
from tests.commands import run

SHARDED = Path(__file__).parents[3] / "sample_ckpts" / "trained" / "fsdp" / "dcp"
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")


def saved(folder, **contents):
    """A distributed checkpoint of one process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(contents, checkpoint_id=folder, no_dist=True)
    return folder


def flip(tensor):
    """Change one bit of the last piece of a tensor."""
    extent = (tensor.chunks[-1][1] if tensor.chunks else tensor).storage.extent
    with open(extent.file, "r+b") as file:
        file.seek(extent.offset + extent.length - 1)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def said(*words, cwd):
    """What a command prints, and the commands in that."""
    came = run(*words, cwd=cwd)
    text = (came.stdout + came.stderr).decode()
    assert came.returncode in (0, 1), text
    return text, re.findall(r"ckptdoctor ((?:check|salvage|convert|fix|graft|merge) [^\n]*)", text)


def works(line, cwd):
    """Whether a command that was printed does what it is for."""
    came = run(*shlex.split(line), cwd=cwd)
    assert came.returncode == 0, (line, came)


def test_nested_values(tmp_path):
    """Of a model with its optimizer, which safetensors cannot hold, the command makes a file of torch."""
    saved(tmp_path / "d", model={"w": torch.ones(3)}, optim={"w": {"step": torch.tensor(1.0), "lr": 0.1}})
    _, lines = said("check", "d", cwd=tmp_path)
    (line,) = [each for each in lines if each.startswith("convert") and "--root" not in each]
    works(line, tmp_path)
    assert torch.load(tmp_path / "d.pt")["optim"]["w"]["lr"] == 0.1


def test_what_one_file_cannot_hold(tmp_path):
    """No command is printed that would be refused; what is in the way is."""
    saved(tmp_path / "d", w=torch.ones(3), _extra_state=io.BytesIO(b"state"))
    text, lines = said("check", "d", cwd=tmp_path)
    assert [line for line in lines if line.startswith("convert")] == []
    assert "One file cannot hold all of it: _extra_state is an object of the class _io.BytesIO." in text


@pytest.mark.parametrize("target", [("out.pt",), ("out", "--to", "dcp")], ids=["file", "folder"])
def test_the_ways_around_what_cannot_be_written(target, tmp_path):
    """The refusal speaks of what was to be written, and each of the ways that it names works."""
    saved(tmp_path / "d", w=torch.ones(3), layers={"a": torch.ones(2)}, _extra_state=io.BytesIO(b"state"))
    text, lines = said("convert", "d", *target, cwd=tmp_path)
    assert f"cannot be written to {'a distributed checkpoint' if len(target) > 1 else 'a torch file'}\n" in text
    (root,) = re.findall(r"--root \w+", text)
    works(f"convert d part {root} --to dcp", tmp_path)
    (line,) = lines
    works(line, tmp_path)
    kept = {each.key for each in ckptdoctor.open(tmp_path / line.split()[-1]).tensors}
    assert kept == {"w", "a"}


def test_nothing_around_what_is_in_a_list(tmp_path):
    """Where no option leaves it out, that is what is printed."""
    torch.save({"w": torch.ones(2), "h": [torch.ones(3).to_sparse()]}, tmp_path / "m.pt")
    text, lines = said("convert", "m.pt", "out", "--to", "dcp", cwd=tmp_path)
    assert lines == []
    assert "choose: save it again without them: no command leaves them out" in text


def test_a_file_that_is_missing(tmp_path):
    """The tensors that are lost with it are named, and no command would be refused."""
    shutil.copytree(SHARDED, tmp_path / "d")
    (tmp_path / "d" / "__0_0.distcp").unlink()
    text, lines = said("check", "d", cwd=tmp_path)
    assert lines == []
    (finding,) = [each for each in ckptdoctor.check(tmp_path / "d").findings if each.code == "X801"]
    lost = {each.path for each in ckptdoctor.open(tmp_path / "d").tensors if _lacks(each)}
    assert lost and set(finding.keys) == lost
    assert "__0_0.distcp is missing" in text and "  keys: " in text


def _lacks(tensor):
    pieces = [chunk for _, chunk in tensor.chunks] or [tensor]
    return any(piece.storage.extent is None for piece in pieces)


def test_a_file_that_was_cut_off(tmp_path):
    """Its part of the tensors is named; by itself the file shows nothing more."""
    shutil.copytree(SHARDED, tmp_path / "d")
    path = tmp_path / "d" / "__1_0.distcp"
    os.truncate(path, path.stat().st_size * 2 // 3)
    text, lines = said("check", "d", cwd=tmp_path)
    assert lines == []
    assert "__1_0.distcp was cut off" in text and "  keys: " in text


def test_a_part_without_what_is_lost(tmp_path):
    """--root takes a part of which everything is there."""
    saved(tmp_path / "d", one={"w": torch.ones(300)}, two={"w": torch.zeros(300)})
    places = {each.path[0]: each.storage.extent.offset for each in ckptdoctor.open(tmp_path / "d").tensors}
    first, last = sorted(places, key=places.get)
    os.truncate(tmp_path / "d" / "__0_0.distcp", places[last] + 40)
    assert run("convert", "d", "out.pt", cwd=tmp_path).returncode == 1
    assert run("convert", "d", "out.pt", "--root", last, cwd=tmp_path).returncode == 1
    assert run("convert", "d", "out.pt", "--root", first, cwd=tmp_path).returncode == 0
    assert list(torch.load(tmp_path / "out.pt")) == ["w"]


def test_values_that_do_not_match(tmp_path):
    """What check --deep prints writes all the others, and so does what convert prints when it refuses."""
    shutil.copytree(SHARDED, tmp_path / "d")
    damaged = next(each for each in ckptdoctor.open(tmp_path / "d").tensors if each.chunks)
    others = {each.key for each in ckptdoctor.open(tmp_path / "d").tensors} - {damaged.key}
    flip(damaged)
    for words in (("check", "--deep", "d"), ("convert", "d", "all.pt")):
        _, (line,) = said(*words, cwd=tmp_path)
        works(line, tmp_path)
        assert {each.key for each in ckptdoctor.open(tmp_path / "d.pt").tensors} == others
        (tmp_path / "d.pt").unlink()


def test_arrays_that_do_not_match(tmp_path):
    """The same of an archive of NumPy, which salvage and graft do not take."""
    np.savez(tmp_path / "m.npz", w=np.ones(9, "f4"), v=np.zeros(9, "f4"))
    flip(next(each for each in ckptdoctor.open(tmp_path / "m.npz").tensors if each.key == "w"))
    for words in (("check", "--deep", "m.npz"), ("convert", "m.npz", "m.safetensors")):
        _, (line,) = said(*words, cwd=tmp_path)
        works(line, tmp_path)
        assert [each.key for each in ckptdoctor.open(tmp_path / "m.pt").tensors] == ["v"]
        (tmp_path / "m.pt").unlink()


def test_values_that_are_not_there_to_compare(tmp_path):
    """diff names no command that takes nothing of such a folder."""
    shutil.copytree(SHARDED, tmp_path / "d")
    (tmp_path / "d" / "__0_0.distcp").unlink()
    text, _ = said("diff", SHARDED, "d", "--values", cwd=tmp_path)
    assert "not compared: it is not complete in the file" in text
    assert "salvage" not in text
