"""The same weights in two files under different names are not written twice without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.commands import run


def weights() -> dict[str, torch.Tensor]:
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 4))
    return {key: value.clone() for key, value in net.state_dict().items()}


def wrapped(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"module.{key}": value for key, value in state.items()}


def merge(folder: Path, *arguments: str) -> tuple[int, str]:
    done = run("merge", *arguments, cwd=folder)
    return done.returncode, done.stdout.decode()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_network_with_and_without_a_prefix_is_refused(tmp_path: Path, suffix: str, turned: bool):
    """With the names, and a command that writes it once; force writes both and says so."""
    state = weights()
    save: Any = torch.save if suffix == ".pt" else save_file
    save(state, tmp_path / f"plain{suffix}")
    save(wrapped(state), tmp_path / f"ddp{suffix}")
    files = [f"plain{suffix}", f"ddp{suffix}"][:: -1 if turned else 1]
    status, said = merge(tmp_path, *files, "-o", "out.pt")
    assert status == 1
    assert f"every tensor of {files[0]} has an equal twin in {files[1]}, under another name" in said
    assert not (tmp_path / "out.pt").exists()
    command = said.partition("choose: ckptdoctor ")[2].partition(",")[0]
    assert run(*command.split(), cwd=tmp_path).returncode == 0
    assert len(torch.load(tmp_path / "out.pt")) == len(state)
    status, said = merge(tmp_path, *files, "-o", "out.pt", "--force")
    assert status == 0
    assert f"  twice     9 of 9 tensors of {files[0]}, equal to others in {files[1]}" in said
    assert len(torch.load(tmp_path / "out.pt")) == 2 * len(state)


def test_a_file_with_more_is_told_from_the_smaller_one(tmp_path: Path):
    """Every tensor of the one that is in the other counts, whichever comes first."""
    state = weights()
    torch.save({**state, "head.weight": torch.rand(2, 4)}, tmp_path / "a.pt")
    torch.save(wrapped(state), tmp_path / "b.pt")
    assert "every tensor of b.pt has an equal twin in a.pt" in merge(tmp_path, "a.pt", "b.pt", "-o", "out.pt")[1]


def test_some_twins_are_counted(tmp_path: Path):
    """The rest being different, the files are merged, and it is said how many are twice."""
    state = weights()
    torch.save({**state, "x": torch.rand(7)}, tmp_path / "a.pt")
    torch.save({**wrapped(state), "y": torch.rand(8)}, tmp_path / "b.pt")
    status, said = merge(tmp_path, "a.pt", "b.pt", "-o", "out.pt")
    assert status == 0
    assert "  twice     4 of 10 tensors of a.pt, equal to others in b.pt: " in said


@pytest.mark.parametrize("case", ["shards", "same names", "constants"])
def test_what_belongs_together_is_merged_without_a_word(tmp_path: Path, case: str):
    """Different tensors, one tensor under one name, and numbers that are equal by chance."""
    one, other = {"a.weight": torch.rand(3, 3), "a.bias": torch.zeros(3)}, {"b.bias": torch.zeros(3)}
    if case == "shards":
        other["b.weight"] = torch.rand(3, 3)
    elif case == "same names":
        other = dict(one)
    else:
        one, other = {"a.bias": torch.zeros(3)}, {"b.bias": torch.zeros(3)}
    torch.save(one, tmp_path / "a.pt")
    torch.save(other, tmp_path / "b.pt")
    status, said = merge(tmp_path, "a.pt", "b.pt", "-o", "out.pt")
    assert status == 0
    assert "twice" not in said


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (torch.empty(3, device="meta"), "has no values in the file (it is on the meta device)"),
        (torch.eye(3).to_sparse(), "is sparse_coo: densify it first"),
    ],
    ids=["meta", "sparse"],
)
def test_one_name_for_what_cannot_be_compared_is_refused(tmp_path: Path, value: torch.Tensor, reason: str):
    """Whether two tensors without plain values are the same is not known, so neither is written."""
    for name in ("a.pt", "b.pt"):
        torch.save({"w": value, name: torch.ones(2)}, tmp_path / name)
    status, said = merge(tmp_path, "a.pt", "b.pt", "-o", "out.pt")
    assert status == 1
    assert f'"w" in a.pt {reason}' in said
