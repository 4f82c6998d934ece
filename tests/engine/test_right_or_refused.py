"""``fix --auto`` is right or refuses, with and without ``--unsafe-fixes``: one law after another, on small files."""

from __future__ import annotations

import shlex

import pytest
import torch

from ckptdoctor.cli.main import run

SQUARE = (8, 8)


@pytest.fixture(params=[(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
def fixed(request, tmp_path, monkeypatch, capsys):
    """What comes out for a target with these shapes: the tensors, or None; and what was said."""
    monkeypatch.chdir(tmp_path)

    def fix(here, shapes):
        torch.save(here, "sick.pt")
        torch.save({key: torch.rand(shape) for key, shape in shapes.items()}, "target.pt")
        status = run(["fix", "sick.pt", "--auto", "--like", "target.pt", "-o", "well.pt", *request.param])
        path = tmp_path / "well.pt"
        assert path.exists() is (status == 0)
        return (torch.load(path, weights_only=True) if status == 0 else None), capsys.readouterr().out

    return fix


def rand(**shapes):
    """Tensors of these shapes; two underscores are a dot."""
    return {key.replace("__", "."): torch.rand(shape) for key, shape in shapes.items()}


@pytest.mark.parametrize("word", ["ema_{}", "{}_momentum", "teacher_{}", "aux_{}", "inv_{}", "{}_grad", "exp_avg_{}"])
def test_a_word_that_makes_another_thing_is_no_other_spelling(word, fixed):
    """The averages, gradients or teachers of layers do not become the layers."""
    shapes = {f"{part}.{n}.weight": SQUARE for part in ("stem", "layers") for n in range(3)}
    here = {key.replace("layers", word.format("layers")): torch.rand(shape) for key, shape in shapes.items()}
    assert fixed(here, shapes)[0] is None


def test_a_bare_square_parameter_is_no_linear_layer(fixed):
    """Which of its sides are outputs no shape tells; of a matrix that is not square it does."""
    here = rand(embed__weight=(9, 8), proj=SQUARE)
    assert fixed(here, {"embed.weight": (9, 8), "proj.weight": SQUARE})[0] is None


def test_a_bare_parameter_with_two_sizes_gets_its_weight(fixed):
    """The shape says how it lies."""
    here = rand(embed__weight=(9, 8), proj=(8, 5), second=(7, 5))
    well, _ = fixed(here, {"embed.weight": (9, 8), "proj.weight": (8, 5), "second.weight": (7, 5)})
    assert well is not None
    assert torch.equal(well["proj.weight"], here["proj"])


@pytest.mark.parametrize("prefix", ["", "model.", "module."])
def test_integers_are_no_weights(prefix, fixed):
    """Codes of a quantised layer are not loaded into a float parameter, under whatever name."""
    here = {f"{prefix}{n}.weight": torch.ones(SQUARE, dtype=torch.int8) for n in "ab"}
    well, said = fixed(here, {"a.weight": SQUARE, "b.weight": SQUARE})
    assert well is None
    assert "integers, which are no weights without their scale: a.weight, b.weight" in said


@pytest.mark.parametrize("numbers", [(0, 2, 3, 4), (0, 1, 3, 7), (0, 4, 8, 9)])
def test_a_list_without_a_member_is_not_closed_up(numbers, fixed):
    """One is missing and one is too many: which one is which, nobody knows."""
    here = {f"layers.{n}.weight": torch.rand(SQUARE) for n in numbers}
    assert fixed(here, {f"layers.{n}.weight": SQUARE for n in range(4)})[0] is None


@pytest.mark.parametrize(("old", "new"), [((0, 2, 4), (0, 1, 2)), ((1, 2, 3), (0, 1, 2)), ((5, 7, 8), (0, 1, 2))])
def test_a_list_moves_as_a_whole_or_not_at_all(old, new, fixed):
    """A shift, every second number, or other numbers altogether: each member is the one that it was."""
    here = {f"layers.{n}.weight": torch.rand(SQUARE) for n in old}
    well, _ = fixed(here, {f"layers.{n}.weight": SQUARE for n in new})
    for one, other in zip(old, new, strict=True):
        assert well is None or torch.equal(well[f"layers.{other}.weight"], here[f"layers.{one}.weight"])


def test_a_lone_part_is_not_put_where_another_is_missing(fixed):
    """Its shapes fit, and say nothing."""
    here = rand(a__weight=SQUARE, b__weight=SQUARE, zeta__weight=SQUARE)
    assert fixed(here, {f"{name}.weight": SQUARE for name in ("a", "b", "head")})[0] is None


@pytest.mark.parametrize(("one", "other"), [("student", "teacher"), ("netG", "netD"), ("module.online", "module.ema")])
def test_two_parts_that_fit_are_a_choice(one, other, fixed, capsys):
    """Each is named with the command that takes it, which works as it stands."""
    shapes = {"fc.weight": SQUARE, "out.weight": (3, 8)}
    here = {f"{part}.{key}": torch.rand(shape) for part in (one, other) for key, shape in shapes.items()}
    well, said = fixed(here, shapes)
    assert well is None
    line = next(each for each in said.splitlines() if each.startswith(f"  {other}, "))
    assert run(shlex.split(line.partition("ckptdoctor ")[2])) == 0
    well = torch.load("well.pt", weights_only=True)
    assert all(torch.equal(well[key], here[f"{other}.{key}"]) for key in shapes)


def test_equal_parts_are_no_rivals(tmp_path, monkeypatch):
    """Where the checksums of both agree there is one answer; the copy is dropped by name."""
    monkeypatch.chdir(tmp_path)
    net = {"fc.weight": torch.rand(SQUARE), "out.weight": torch.rand(3, 8)}
    here = {f"{part}.{key}": value.clone() for part in ("model", "best") for key, value in net.items()}
    torch.save(here, "sick.pt")
    torch.save({key: torch.rand(value.shape) for key, value in net.items()}, "target.pt")
    words = ["fix", "sick.pt", "--auto", "--like", "target.pt", "-o", "well.pt", "--unsafe-fixes"]
    assert run(words) == 0
    well = torch.load("well.pt", weights_only=True)
    assert all(torch.equal(well[key], value) for key, value in net.items())
