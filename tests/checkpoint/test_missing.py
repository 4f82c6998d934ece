"""A path that is not there is answered with the one that was meant."""

from __future__ import annotations

import os

import pytest
import torch

from tests.commands import run_here


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two checkpoints, one of them in a folder, and a link that leads nowhere."""
    path = tmp_path_factory.mktemp("typed")
    (path / "runs").mkdir()
    for name in ("model.pt", "runs/best.pt"):
        torch.save({"weight": torch.ones(2)}, path / name)
    os.symlink("nowhere.pt", path / "dangling.pt")
    return path


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("modle.pt", 'modle.pt cannot be opened: No such file or directory. Did you mean "model.pt"?'),
        ("./MODEL.PT", './MODEL.PT cannot be opened: No such file or directory. Did you mean "./model.pt"?'),
        ("runs/bset.pt", 'runs/bset.pt cannot be opened: No such file or directory. Did you mean "runs/best.pt"?'),
        ("rnus/best.pt", 'rnus/best.pt cannot be opened: No such file or directory. Did you mean "runs/best.pt"?'),
        ("xyzzy.pt", "xyzzy.pt cannot be opened: No such file or directory."),
        ("dangling.pt", "dangling.pt cannot be opened: No such file or directory."),
        ("modle*.pt", 'No file matches modle*.pt. Did you mean "model.pt"?'),
        ("x*.pt", "No file matches x*.pt."),
    ],
)
def test_what_is_like_it_is_offered(folder, typed, said):
    """Each part of the path that is not there may be misspelt; a suffix alone is not like anything."""
    done = run_here("check", typed, cwd=folder)
    assert (done.returncode, done.stderr.decode()) == (2, f"error: {said}\n")


@pytest.mark.parametrize(
    "typed",
    [
        ["show", "modle.pt"],
        ["diff", "modle.pt", "runs/best.pt"],
        ["fix", "modle.pt"],
        ["convert", "modle.pt", "out.pt"],
        ["merge", "modle.pt", "-o", "out.pt"],
        ["merge", "--part", "encoder=modle.pt", "-o", "out.pt"],
        ["salvage", "modle.pt"],
        ["graft", "modle.pt", "--from", "runs/best.pt"],
        ["report", "modle.pt"],
        ["seal", "modle.pt"],
        ["verify", "modle.pt"],
        ["browse", "modle.pt", "--serve"],
        ["explain", "modle.pt"],
        ["check", "model.pt", "--like", "modle.pt"],
        ["check", "model.pt", "--config", "modle.pt"],
        ["check", "model.pt", "--error", "modle.pt"],
        ["fix", "model.pt", "--map", "modle.pt"],
    ],
    ids=" ".join,
)
def test_every_command_offers_it(folder, typed):
    """Whatever the path is for, and nothing is written."""
    done = run_here(*typed, cwd=folder)
    assert done.returncode == 2 and done.stderr.decode().endswith('Did you mean "model.pt"?\n')
    assert len(os.listdir(folder)) == 3


def test_names_of_files_are_escaped(tmp_path):
    """A name that would write into the terminal does not when it is offered."""
    (tmp_path / "model\x1b[2J.pt").write_bytes(b"")
    done = run_here("check", "model[2J.pt", cwd=tmp_path)
    assert b"Did you mean" in done.stderr and b"\x1b" not in done.stderr
