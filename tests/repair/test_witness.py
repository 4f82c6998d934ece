"""Values as the last witness of ``fix --like``: equal bytes confirm and decide, and nothing else that they say does."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from ckptdoctor.cli.main import run

PARTS = ("alpha", "beta", "gamma", "omega")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(3)
    return tmp_path


def saved(path, tensors):
    """The tensors as a file of either kind."""
    if path.endswith(".safetensors"):
        save_file({key: value.clone() for key, value in tensors.items()}, path)
    else:
        torch.save(tensors, path)
    return path


def fix(source, target, *words):
    """The status of a repair."""
    return run(["fix", source, "--like", target, "-o", "well.pt", *words])


def trained(value=None):
    """Four parts of one shape."""
    return {f"{name}.weight": torch.rand(4, 4) if value is None else torch.full((4, 4), value) for name in PARTS}


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
@pytest.mark.parametrize("mode", [(), ("--unsafe-fixes",)])
def test_the_same_bytes_under_another_name_are_that_tensor(kind, mode, folder):
    """Names that tell nothing are told by values where the target has the very same ones, in whatever order."""
    there = trained()
    names = dict(zip(PARTS, ("p", "q", "r", "s"), strict=True))
    here = {f"{names[key.split('.')[0]]}.weight": value for key, value in reversed(there.items())}
    saved(f"target.{kind}", there)
    assert fix(saved(f"sick.{kind}", here), f"target.{kind}", *mode) == 0
    well = torch.load("well.pt", weights_only=True)
    assert all(torch.equal(well[key], value) for key, value in there.items())


def test_values_that_differ_tell_nothing(folder, capsys):
    """A target whose weights are others leaves the choice to a person, however close they are."""
    there = trained()
    here = {f"{name}.weight": value + 1e-6 for name, value in zip("pqrs", there.values(), strict=True)}
    saved("target.pt", there)
    assert fix(saved("sick.pt", here), "target.pt") == 1
    assert "--write-map" in capsys.readouterr().out


def test_numbers_that_are_all_the_same_tell_nothing(folder):
    """Weights that were only initialised are equal to whatever was: they are no witness."""
    saved("target.pt", trained(1.0))
    here = {f"{name}.weight": value for name, value in zip("pqrs", trained(1.0).values(), strict=True)}
    assert fix(saved("sick.pt", here), "target.pt") == 1


def test_a_target_with_the_same_bytes_twice_tells_nothing(folder):
    """Where two names there have the bytes, neither is it."""
    there = trained()
    there["beta.weight"] = there["alpha.weight"].clone()
    here = {f"{name}.weight": value.clone() for name, value in zip("pqrs", there.values(), strict=True)}
    saved("target.pt", there)
    assert fix(saved("sick.pt", here), "target.pt") == 1


def test_of_several_sets_the_one_with_the_bytes_of_the_target_is_taken(folder):
    """Raw and averaged weights: the target's own bytes decide."""
    there = trained()
    saved("target.pt", there)
    torch.save({"model": trained(), "ema": {key: value.clone() for key, value in there.items()}}, "sick.pt")
    assert fix("sick.pt", "target.pt") == 0
    well = torch.load("well.pt", weights_only=True)
    assert all(torch.equal(well[key], value) for key, value in there.items())


def test_sets_of_equal_bytes_are_no_rivals(folder):
    """Two sets that hold the same values are one."""
    here = trained()
    saved("target.pt", trained())
    torch.save({"model": here, "ema": {key: value.clone() for key, value in here.items()}}, "sick.pt")
    assert fix("sick.pt", "target.pt") == 0
    well = torch.load("well.pt", weights_only=True)
    assert all(torch.equal(well[key], value) for key, value in here.items())


def test_of_flat_rivals_the_one_with_the_bytes_of_the_target_is_named(folder, capsys):
    """Student and teacher in one dict: the target's own bytes say which, and a person leaves the other out."""
    there = trained()
    saved("target.pt", there)
    student = {f"student.{key}": value for key, value in trained().items()}
    saved("sick.pt", {**student, **{f"teacher.{key}": value.clone() for key, value in there.items()}})
    assert fix("sick.pt", "target.pt") == 1
    said = [line for line in capsys.readouterr().out.splitlines() if "the bytes of the target" in line]
    assert len(said) == 1
    assert said[0].startswith("  teacher, 4 keys, the bytes of the target: ckptdoctor fix sick.pt ")


def test_only_what_is_uncertain_is_read(folder, monkeypatch):
    """Where names tell everything, no values are read, of either file."""
    from ckptdoctor.repair import witness

    saved("target.pt", trained())
    saved("sick.pt", {f"module.{key}": value for key, value in trained().items()})
    monkeypatch.setattr(witness, "probe", lambda *_: pytest.fail("values were read"))
    assert fix("sick.pt", "target.pt") == 0


def headed(value=None):
    """An embedding and a head that is not said to be the same, in a target of safetensors."""
    table = torch.rand(9, 4) if value is None else torch.full((9, 4), value)
    return {"model.embed_tokens.weight": table, "model.norm.weight": torch.rand(4), "lm_head.weight": table}


@pytest.mark.parametrize("mode", [(), ("--unsafe-fixes",)])
def test_a_head_is_the_embedding_where_the_target_has_the_same_bytes_twice(mode, folder):
    """Models are known to share the two, and this one does: what was saved once gets both names."""
    saved("target.safetensors", headed())
    here = {key: value for key, value in headed().items() if key != "lm_head.weight"}
    assert fix(saved("sick.pt", here), "target.safetensors", *mode) == 0
    well = torch.load("well.pt", weights_only=True)
    assert torch.equal(well["lm_head.weight"], here["model.embed_tokens.weight"])


@pytest.mark.parametrize("mode", [(), ("--unsafe-fixes",)])
@pytest.mark.parametrize("why", ["other bytes", "one number", "no known pair"])
def test_a_head_is_not_made_of_what_may_be_another(why, mode, folder):
    """A head of its own, a skeleton of zeros, and two parts that begin alike (a target network, say) prove nothing."""
    there = headed(0.0 if why == "one number" else None)
    if why == "other bytes":
        there["lm_head.weight"] = there["lm_head.weight"] + 1
    elif why == "no known pair":
        there = {key.replace("lm_head", "twin"): value for key, value in there.items()}
    saved("target.safetensors", there)
    here = {key: torch.rand_like(value) for key, value in there.items() if "head" not in key and "twin" not in key}
    assert fix(saved("sick.pt", here), "target.safetensors", *mode) == 1


@pytest.mark.parametrize("mode", [(), ("--unsafe-fixes",)])
@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_a_third_name_of_a_tensor_is_none_where_the_target_tells_each_of_its_names(kind, mode, folder):
    """A target with two names of one tensor would have the third one, too, if its model had it."""
    saved(f"target.{kind}", headed())
    saved("sick.pt", {key.replace("lm_head", "zeta"): value for key, value in headed().items()})
    assert fix("sick.pt", f"target.{kind}", *mode) == 0
    well = torch.load("well.pt", weights_only=True)
    assert set(well) == set(headed())
    torch.save({**well, "zeta.weight": well["lm_head.weight"]}, "more.pt")
    assert run(["check", "more.pt", "--like", f"target.{kind}"]) == 1


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_what_the_target_lacks_goes_where_the_same_bytes_stay(kind, folder, capsys):
    """A copy in memory of its own, as safetensors writes a tied tensor, is no loss: no one has to allow it."""
    there = trained()
    saved("target.pt", there)
    here = {**trained(), "zeta.weight": torch.rand(4, 4)}
    saved(f"alone.{kind}", here)
    assert fix(f"alone.{kind}", "target.pt") == 1
    saved(f"twice.{kind}", {**here, "zeta.weight": here["beta.weight"].clone()})
    assert run(["fix", f"twice.{kind}", "--like", "target.pt", "-o", f"well.{kind}"]) == 0
    assert "values same-bytes" in (said := capsys.readouterr().out)
    assert "zeta.weight" in said
    well = torch.load("well.pt", weights_only=True) if kind == "pt" else load_file("well.safetensors")
    assert set(well) == set(there)
    assert all(torch.equal(well[key], here[key]) for key in there)


def test_a_tensor_of_one_number_is_no_copy_of_another(folder):
    """All ones are equal to whatever else was only initialised: a person says that they may go."""
    saved("target.pt", trained(1.0))
    assert fix(saved("sick.pt", {**trained(1.0), "zeta.weight": torch.ones(4, 4)}), "target.pt") == 1
