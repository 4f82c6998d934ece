"""Optimizer states beside weights that are split, fused or turned: the plan says that they do not fit any more."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ckptdoctor.edits import Fill, Fuse, FuseNorm, Rename, Reshape, Split, Transpose
from tests.repair.applying import planned, repaired

PLACE = ("model",)
TOLD = "does not fit the repaired weights: --drop optimizer, or continue training with a fresh one"


def run(*, named=True, steps=1, frozen=False):
    """A file of a training run: model and optimizer."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"qkv": nn.Linear(4, 6), "norm": nn.LayerNorm(4), "fc": nn.Linear(4, 4)})
    norm = nn.utils.weight_norm(nn.Linear(4, 3))
    model["normed"] = norm
    trained = [(key, each) for key, each in model.named_parameters() if not (frozen and key.startswith("qkv"))]
    optimizer = torch.optim.Adam(trained if named else [each for _, each in trained])
    for _ in range(steps):
        sum(each.sum() for _, each in trained).backward()
        optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


pytestmark = pytest.mark.filterwarnings("ignore")

SPLIT = Split((*PLACE, "qkv.weight"), (("q.weight", 0, 2), ("kv.weight", 2, 6)))
EDITS = {
    "split": SPLIT,
    "fuse": Fuse(((*PLACE, "fc.weight"), (*PLACE, "qkv.weight")), "all.weight"),
    "transpose": Transpose((*PLACE, "fc.weight")),
    "reshape": Reshape((*PLACE, "qkv.weight"), (6, 4, 1, 1)),
    "norm": FuseNorm(((*PLACE, "normed.weight_v"), (*PLACE, "normed.weight_g")), "normed.weight", "weight", 0),
    "fill": Fill((*PLACE, "new.weight"), "float32", (2, 2), 0.0),
}


def told(path, *edits):
    """What the plan says of optimizers."""
    changes = [each for step in planned(path, edits).steps for each in step.changes]
    return [each.pairs for each in changes if each.kind == "optimizer-unfit"]


@pytest.mark.parametrize("named", [True, False], ids=["named", "numbered"])
@pytest.mark.parametrize("edit", EDITS)
def test_the_plan_says_that_the_state_does_not_fit(tmp_path, edit, named):
    """One line, with what to do; the state itself stays byte for byte what it was."""
    saved = run(named=named)
    torch.save(saved, tmp_path / "run.pt")
    assert told(tmp_path / "run.pt", EDITS[edit]) == [(("optimizer", TOLD),)]
    after = torch.load(repaired(tmp_path / "run.pt", [EDITS[edit]]).plan.output, weights_only=True)
    assert after["optimizer"]["param_groups"] == saved["optimizer"]["param_groups"]
    for number, state in saved["optimizer"]["state"].items():
        assert all(torch.equal(after["optimizer"]["state"][number][key], each) for key, each in state.items())


def test_once_for_edits_that_belong_together(tmp_path):
    """Several edits of the same weights are told once."""
    torch.save(run(), tmp_path / "run.pt")
    flat = Reshape((*PLACE, "qkv.weight"), (3, 8))
    assert len(told(tmp_path / "run.pt", flat, Split((*PLACE, "qkv.weight"), (("a", 0, 1), ("b", 1, 3))))) == 1


@pytest.mark.parametrize(
    "edit", [Rename(PLACE, (("fc.weight", "head.weight"),)), Fill((*PLACE, "n.num_batches_tracked"), "int64", (), 0)]
)
def test_nothing_is_said_where_it_still_fits(tmp_path, edit):
    """Names follow, and counters are no parameters."""
    torch.save(run(), tmp_path / "run.pt")
    assert told(tmp_path / "run.pt", edit) == []


def test_frozen_weights_are_none_of_its_business(tmp_path):
    """By its names the optimizer never knew the weights that are split."""
    torch.save(run(frozen=True), tmp_path / "run.pt")
    assert told(tmp_path / "run.pt", SPLIT) == []


def test_another_model_s_optimizer_is_none_either(tmp_path):
    """Numbered states in other shapes."""
    saved = run(named=False)
    other = nn.Linear(9, 9)
    optimizer = torch.optim.Adam(other.parameters())
    other(torch.rand(1, 9)).sum().backward()
    optimizer.step()
    torch.save({**saved, "optimizer": optimizer.state_dict()}, tmp_path / "run.pt")
    assert told(tmp_path / "run.pt", SPLIT) == []
