"""The fit of a checkpoint to a target, in rows."""

from __future__ import annotations

import torch

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.targets import read_reference
from ckptdoctor.fit.fit import FitStep, Misfit, fit_to
from ckptdoctor.formats import open_checkpoint
from ckptdoctor.tui.models.fitted import headline, names_of, rows


def fit(tmp_path, contents, target):
    """Both as files, and how one fits the other."""
    torch.save(contents, tmp_path / "a.pt")
    torch.save(target, tmp_path / "b.pt")
    reference = read_reference(Settings(like=str(tmp_path / "b.pt")))
    return fit_to(open_checkpoint(str(tmp_path / "a.pt")), reference)


def state(*names, size=2):
    """Tensors of these names."""
    return {name: torch.ones(size) for name in names}


def test_steps_build_on_each_other(tmp_path):
    """Each step renames what the one before it left."""
    wrapped = {"state_dict": state("module._orig_mod.a.weight", "module._orig_mod.a.bias")}
    found = fit(tmp_path, wrapped, state("a.weight", "a.bias"))
    assert found.complete and found.keys == 0
    pairs = {step.code: step.pairs[0] for step in found.steps}
    assert pairs["W301"] == ("state_dict/module._orig_mod.a.weight", "module._orig_mod.a.weight")
    named = [name for code, pair in pairs.items() if code != "W301" for name in pair]
    assert named[0] == "module._orig_mod.a.weight" and named[-1] == "a.weight"
    assert named[1] == named[2] if len(named) == 4 else True


def test_what_is_dropped_goes(tmp_path):
    """The counter of averaged weights has no name afterwards."""
    averaged = state("module.a.weight", "module.a.bias") | {"n_averaged": torch.tensor(3)}
    found = fit(tmp_path, averaged, state("a.weight", "a.bias"))
    (step,) = found.steps
    assert isinstance(step, FitStep) and ("n_averaged", "") in step.pairs
    assert [each.after for each in names_of(rows(found)[1]) if each.before == "n_averaged"] == ["dropped"]


def test_left_over(tmp_path):
    """Missing, of another shape, and more than is wanted; each with its shape."""
    found = fit(
        tmp_path,
        state("a.weight", "b.weight", "c.weight") | state("fc.weight", size=10),
        state("a.weight", "b.weight", "d.weight", "e.weight") | state("fc.weight", size=5),
    )
    assert found.mismatched == (Misfit("fc.weight", (10,), (5,)),)
    titles = {row.title: names_of(row) for row in rows(found)}
    assert titles["missing"][0].before == "{d,e}.weight" and titles["missing"][0].right == "2 keys"
    assert titles["shape mismatch"][0].right == "[10] here, [5] expected"
    assert titles["unexpected"][0].before == "c.weight"
    assert "no renaming makes the rest fit" in headline(found)


def test_all_of_it_fits(tmp_path):
    """There is nothing to do, and it says so."""
    found = fit(tmp_path, state("a.weight"), state("a.weight"))
    assert found.complete and headline(found).startswith("all 1 key of ")
    assert len(rows(found)) == 1
