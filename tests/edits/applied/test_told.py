"""Edits of tensors as people are shown them: alike ones in one line, each in the list of differences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ckptdoctor.edits import Edit, Fill, Fuse, Reshape, Split, Transpose
from ckptdoctor.rendering import fix_json, fix_text
from ckptdoctor.repair.repair import preview
from tests.repair.applying import planned
from tests.repair.checkpoints import save

PARTS = (("h.0.q", 0, 2), ("h.0.k", 2, 4), ("h.0.v", 4, 6))


@pytest.mark.parametrize(
    ("edits", "line", "difference"),
    [
        (
            [Transpose((f"h.{index}.w",)) for index in range(4)],
            "transpose h.{0..3}.* [6, 2]  →  [2, 6]   4 tensors",
            ["-h.0.w [6, 2]", "+h.0.w [2, 6]", "-h.1.w [6, 2]"],
        ),
        (
            [Reshape(("h.0.w",), (6, 2, 1, 1))],
            "reshape h.0.w [6, 2]  →  [6, 2, 1, 1]   1 tensor",
            ["-h.0.w [6, 2]", "+h.0.w [6, 2, 1, 1]"],
        ),
        (
            [Fill((f"h.{index}.n",), "int64", (), 0) for index in range(4)],
            "fill h.{0..3}.* [] int64 = 0   4 tensors",
            ["+h.0.n [] int64 = 0", "+h.1.n [] int64 = 0"],
        ),
        (
            [Split(("h.0.w",), PARTS)],
            "split h.0.w [6, 2]  →  h.0.{q,k,v} [2, 2]   1 tensor",
            ["-h.0.w [6, 2]", "+h.0.q [2, 2]", "+h.0.k [2, 2]", "+h.0.v [2, 2]"],
        ),
        (
            [Fuse((("h.0.w",), ("h.1.w",)), "h.w", 1)],
            "fuse h.{0..1}.* [6, 2]  →  h.w [6, 4]   1 tensor",
            ["-h.0.w [6, 2]", "-h.1.w [6, 2]", "+h.w [6, 4]"],
        ),
    ],
    ids=["transpose", "reshape", "fill", "split", "fuse"],
)
def test_the_plan_says_what_becomes_of_tensors(tmp_path: Path, edits: list[Edit], line: str, difference: list[str]):
    """In a line of the plan, in the list of differences, and in JSON."""
    path = save({f"h.{index}.w": torch.ones(6, 2) for index in range(4)}, tmp_path / "model.pt")
    report = preview(planned(path, edits))
    assert line in fix_text.outcome(report)
    shown = fix_text.difference(report).split("\n")
    start = shown.index(difference[0])
    assert shown[start : start + len(difference)] == difference
    (change,) = json.loads(fix_json.render(report, "0"))["steps"][0]["changes"]
    assert change["kind"] == line.split(" ")[0]
    assert change["pairs"]


def test_different_shapes_are_told_apart(tmp_path: Path):
    """Tensors of two shapes are two lines."""
    path = save({"a": torch.ones(2, 3), "b": torch.ones(4, 5), "c": torch.ones(2, 3)}, tmp_path / "model.pt")
    text = fix_text.outcome(preview(planned(path, [Transpose((key,)) for key in "abc"])))
    assert "transpose {a,c} [2, 3]  →  [3, 2]" in text
    assert "transpose b [4, 5]  →  [5, 4]" in text
