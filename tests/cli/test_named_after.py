"""Outputs without a name of their own are called after the real folder, and are next to it, however that was given."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.broken_shards import folder
from tests.commands import run

DISTRIBUTED = Path(__file__).parents[2] / "sample_ckpts" / "trained" / "fsdp" / "dcp"
# how the folder "model" is named, and from where
WAYS = [(".", "model"), ("./", "model"), ("x/..", "model"), ("..", "model/x"), ("model/", "."), ("model/.", ".")]


@pytest.fixture
def damaged(tmp_path):
    """A folder of shards of which one is missing, and a folder below it."""
    folder(tmp_path / "model", damage="missing")
    (tmp_path / "model" / "x").mkdir()
    return tmp_path / "model"


def around(path):
    """What is in the folder, and what is next to it."""
    return sorted(os.listdir(path)), sorted(os.listdir(path.parent))


@pytest.mark.parametrize(("way", "cwd"), WAYS)
def test_salvage(damaged, tmp_path, way, cwd):
    """The folder itself gets no new file."""
    inside, beside = around(damaged)
    came = run("salvage", way, cwd=tmp_path / cwd)
    assert came.returncode == 1, came
    assert around(damaged) == (inside, sorted([*beside, "model.salvaged"]))


@pytest.mark.parametrize(("way", "cwd"), WAYS)
def test_graft(damaged, tmp_path, way, cwd):
    """The same of a graft."""
    folder(tmp_path / "other")
    inside, beside = around(damaged)
    came = run("graft", way, "--from", tmp_path / "other", cwd=tmp_path / cwd)
    assert came.returncode == 0, came
    assert around(damaged) == (inside, sorted([*beside, "model.grafted"]))


@pytest.mark.parametrize(("way", "cwd"), WAYS)
def test_commands(tmp_path, way, cwd):
    """A command that check prints for a distributed checkpoint writes next to it as well."""
    shutil.copytree(DISTRIBUTED, tmp_path / "model")
    (tmp_path / "model" / "x").mkdir()
    inside, beside = around(tmp_path / "model")
    text = run("check", way, cwd=tmp_path / cwd).stdout.decode()
    (line,) = re.findall(r"ckptdoctor (convert .*)", text)
    came = run(*shlex.split(line), cwd=tmp_path / cwd)
    assert came.returncode == 0, (line, came)
    now = around(tmp_path / "model")
    assert now[0] == inside
    (new,) = set(now[1]) - set(beside)
    assert Path(new).stem == "model"


@pytest.mark.parametrize(("way", "cwd"), WAYS)
def test_a_repaired_folder(tmp_path, way, cwd):
    """The command that a refusal prints writes next to it, too."""
    folder(tmp_path / "model")
    (tmp_path / "model" / "x").mkdir()
    inside, beside = around(tmp_path / "model")
    text = run("fix", way, "--drop", "model.layers.0.a.weight", cwd=tmp_path / cwd).stdout.decode()
    (line,) = re.findall(r"ckptdoctor (fix .*)", text)
    came = run(*shlex.split(line), cwd=tmp_path / cwd)
    assert came.returncode == 0, (line, came)
    assert around(tmp_path / "model") == (inside, sorted([*beside, "model.fixed"]))
