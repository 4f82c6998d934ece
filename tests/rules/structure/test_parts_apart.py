"""W312: dicts of their own become the state dict of the whole model, or nothing is written."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.commands import run_here


class Both(nn.Module):
    """An encoder with running stats, and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        self.decoder = nn.Linear(3, 4)


def parts(model: nn.Module, lead: str = "") -> dict[str, object]:
    """The state dict of each child."""
    return {
        name: {lead + key: value for key, value in each.state_dict().items()} for name, each in model.named_children()
    }


def tree(model: nn.Module) -> dict[str, object]:
    """A dict for each module."""
    found: dict[str, object] = dict(model.named_parameters(recurse=False)) | dict(model.named_buffers(recurse=False))
    found = {key: value.detach() for key, value in found.items()}
    return found | {name: tree(each) for name, each in model.named_children()}


def fixed(tmp_path: Path, contents: object, model: nn.Module, *options: str):
    """The command's result, and what it wrote."""
    torch.save(contents, tmp_path / "parts.pt")
    torch.save(model.state_dict(), tmp_path / "like.pt")
    command = ("fix", "parts.pt", "--auto", "--like", "like.pt", "-o", "out.pt", *options)
    result = run_here(*command, cwd=tmp_path)
    written = tmp_path / "out.pt"
    return result, torch.load(written, weights_only=True) if written.exists() else None


@pytest.mark.parametrize(
    "contents",
    [
        parts,
        lambda model: {"epoch": 3, **parts(model)},
        lambda model: {"model": parts(model), "optimizer": {"state": {}, "param_groups": []}},
        tree,
        lambda model: {"params": tree(model), "step": 4},
        lambda model: parts(model, "module."),
    ],
    ids=["parts", "beside an epoch", "inside", "a tree", "a tree inside", "wrapped parts"],
)
def test_they_load_into_the_whole_model(tmp_path: Path, contents):
    """Under the names of the target, strictly, with every bit as it was."""
    model = Both()
    result, found = fixed(tmp_path, contents(model), model)
    assert result.returncode == 0, result.stdout.decode()
    Both().load_state_dict(found, strict=True)
    assert all(torch.equal(value, found[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    "contents",
    [
        lambda model: {**parts(model), "encoder_ema": parts(Both())["encoder"]},
        lambda model: {"a": parts(model), "b": parts(Both())},
        lambda model: {"encoder": parts(model)["encoder"]},
        lambda model: {"encoder": parts(model)["encoder"], "teacher": parts(model)["decoder"]},
        lambda model: {**parts(model), "decoder": {"weight": torch.ones(4, 5), "bias": torch.ones(4)}},
    ],
    ids=["an average", "two models", "one part", "another name", "another shape"],
)
@pytest.mark.parametrize("mode", [[], ["--unsafe-fixes"]], ids=["plain", "unsafe"])
def test_what_leaves_a_choice_or_a_gap_is_refused(tmp_path: Path, contents, mode):
    """Nothing is written where another set would do as well, or a part is not there under its name."""
    model = Both()
    result, found = fixed(tmp_path, contents(model), model, *mode)
    assert result.returncode == 1
    assert found is None


@pytest.mark.parametrize("inside", [False, True], ids=["at the top", "inside"])
def test_of_a_part_with_something_more_the_rest_is_put_together_once_that_is_confirmed(tmp_path: Path, inside: bool):
    """The draft map names the one tensor that has no place, by its path; null leaves it out, and all else stays."""
    model = Both()
    held = parts(model)
    held["decoder"]["projector.weight"] = torch.rand(4, 4)
    result, found = fixed(tmp_path, {"model": held, "epoch": 1} if inside else held, model)
    assert (result.returncode, found) == (1, None)
    commands = [shlex.split(line)[1:] for line in result.stdout.decode().splitlines() if "ckptdoctor fix " in line]
    write, apply = commands
    assert "--write-map" in write and "--map" in apply
    run_here(*write, cwd=tmp_path)
    path = tmp_path / write[write.index("--write-map") + 1]
    draft = json.loads(path.read_text())
    assert [(key, mark["to"]) for key, mark in draft["names"].items()] == [("decoder/projector.weight", None)]
    assert run_here(*apply, cwd=tmp_path).returncode == 1
    draft["names"] = dict.fromkeys(draft["names"])
    path.write_text(json.dumps(draft))
    assert run_here(*apply, cwd=tmp_path).returncode == 0
    whole = torch.load(tmp_path / "out.pt", weights_only=True)
    Both().load_state_dict(whole, strict=True)
    assert all(torch.equal(value, whole[key]) for key, value in model.state_dict().items())


def test_of_a_part_with_something_more_the_rest_is_put_together_where_a_loss_is_admitted(tmp_path: Path):
    """--unsafe-fixes drops what has no place."""
    model = Both()
    held = parts(model)
    held["decoder"]["projector.weight"] = torch.rand(4, 4)
    result, found = fixed(tmp_path, held, model, "--unsafe-fixes")
    assert result.returncode == 0, result.stdout.decode()
    Both().load_state_dict(found, strict=True)
