"""Missing files are named next to the contents of a checkpoint."""

from __future__ import annotations

import os

import pytest

import ckptdoctor
from ckptdoctor.differences import Side
from tests.broken_shards import SECOND, folder, name
from tests.commands import run_here

FIRST = "model.layers.0.a.weight"


@pytest.fixture
def told(tmp_path):
    """What ``show`` says next to the contents of a folder, or of a part of it."""

    def shown(path, root=None):
        chosen = () if root is None else ("--root", root)
        return run_here("show", path, *chosen, cwd=tmp_path).stderr.decode().removesuffix("\n")

    return shown


def test_the_file_and_what_follows_are_told(tmp_path, told):
    """One file, and several; a path with a space is quoted; a part without any of it hears nothing."""
    path = tmp_path / "a b"
    folder(path, damage="missing")
    one = told(path)
    more = f"More: ckptdoctor check '{path}'"
    assert one == f"{name(2)} is missing, with 8 tensors of the index. Its content is not shown. {more}"
    assert told(path, FIRST) == ""
    os.remove(path / name(3))
    assert told(path).endswith(f"Their content is not shown. {more}")


def test_files_matter_to_the_parts_that_hold_their_tensors(tmp_path, told):
    """Where an index names the tensors of a file, it matters to parts that hold one of them; else to every part."""
    folder(tmp_path / "listed", damage="page")
    folder(tmp_path / "numbered", damage="missing", index=False)
    assert name(2) in told("listed") and told("listed", FIRST) == ""
    contents = ckptdoctor.open(tmp_path / "listed")
    for root in ((), (SECOND[0],)):
        assert [note.member for note in Side("listed", contents, root).unread] == [name(2)]
    assert told("numbered", FIRST).startswith(f"{name(2)} is missing")
    assert told("numbered").startswith(f"{name(2)} is missing")


def test_the_first_files_are_told_and_the_rest_is_counted(tmp_path, told):
    """Three in their own words, without the path of the folder."""
    numbers = [f"model-{number:05}-of-00007.safetensors" for number in range(1, 8)]
    folder(tmp_path / "m", index=False)
    os.rename(tmp_path / "m" / name(1), tmp_path / "m" / numbers[0])
    for number in (2, 3):
        os.remove(tmp_path / "m" / name(number))
    for number in (1, 2):
        (tmp_path / "m" / numbers[number]).write_bytes((tmp_path / "m" / numbers[0]).read_bytes())
    three = "; ".join(f"{each} is missing" for each in numbers[3:6])
    assert told("m").startswith(f"{three}; and 1 more file. ")
    (tmp_path / "m" / numbers[2]).unlink()
    assert f"; {numbers[4]} is missing; and 2 more files. " in told("m")
    for number in (2, 3):
        (tmp_path / "m" / numbers[number]).write_bytes((tmp_path / "m" / numbers[0]).read_bytes())
    assert told("m").startswith("; ".join(f"{each} is missing" for each in numbers[4:7]) + ". ")
