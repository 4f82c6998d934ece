"""Missing files are named next to the contents of a checkpoint."""

from __future__ import annotations

import os

import ckptdoctor
from ckptdoctor.report.contents import left_out
from tests.broken_shards import SECOND, folder, name


def test_the_file_and_what_follows_are_told(tmp_path):
    """One file, and several; a path with a space is quoted; a part without any of it hears nothing."""
    folder(tmp_path / "a b", damage="missing")
    path = tmp_path / "a b"
    one = left_out(ckptdoctor.open(path), "is not shown")
    more = f"“ckptdoctor check '{path}'” says more."
    assert one == f"{name(2)} is missing, with 8 tensors of the index. What belongs in it is not shown: {more}"
    assert left_out(ckptdoctor.open(path), "is not shown", (SECOND[0],)) == one
    assert left_out(ckptdoctor.open(path), "is not shown", ("model.layers.0.a.weight",)) == ""
    os.remove(path / name(3))
    assert left_out(ckptdoctor.open(path), "is not shown").endswith(f"What belongs in them is not shown: {more}")
