"""Orthogonal parametrizations: computed as torch computes them, once a person has said with which map."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from ckptdoctor.cli.main import run
from ckptdoctor.computing.proof import require_calculated
from ckptdoctor.edits.computing import ORTHOGONAL
from ckptdoctor.edits.elements import Calculated, View
from ckptdoctor.errors import WriteError

SHAPES = {"square": (5, 5), "tall": (7, 4), "wide": (4, 7), "one row": (1, 6), "one column": (6, 1)}


def trained(shape, kind, trivial=True, dtype=torch.float32, prefix=""):
    """A layer with the parametrization, its original somewhere in the middle of training, and the plain weight."""
    torch.manual_seed(0)
    layer = nn.Linear(shape[1], shape[0]).to(dtype)
    parametrizations.orthogonal(layer, orthogonal_map=kind, use_trivialization=trivial)
    original = layer.parametrizations.weight.original
    with torch.no_grad():
        # what training changes: neither the diagonal nor what lies above it has a gradient
        rows, columns = shape
        tall = original if rows >= columns else original.mT
        tall += torch.randn_like(tall).tril(-1)
    model = nn.ModuleDict({"fc": layer, "head": nn.Linear(2, 3).to(dtype)})
    state = {prefix + key: value.clone() for key, value in model.state_dict().items()}
    weight = layer.weight.detach().clone()
    parametrize.remove_parametrizations(layer, "weight")
    return state, model.state_dict(), weight


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fixed(state, like, *options):
    """What is written, and the status."""
    torch.save(state, "m.pt")
    torch.save({key: torch.zeros_like(value) for key, value in like.items()}, "like.pt")
    return run(["fix", "m.pt", "--like", "like.pt", "-o", "out.pt", "--force", *options])


@pytest.mark.parametrize("trivial", [True, False], ids=["with a base", "without"])
@pytest.mark.parametrize("kind", ORTHOGONAL)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_weight_is_that_of_torch(shape, kind, trivial):
    """Tall, wide and square ones, in float64 and rounded once, where torch computes in float32."""
    state, like, weight = trained(shape, kind, trivial, prefix="module.")
    assert fixed(state, like, "--orthogonal-map", kind) == 0
    made = torch.load("out.pt", weights_only=True)
    assert made.keys() == like.keys()
    assert torch.allclose(made["fc.weight"], weight, atol=1e-5)
    wide = made["fc.weight"] if shape[0] < shape[1] else made["fc.weight"].mT
    assert torch.allclose(wide @ wide.mT, torch.eye(min(shape)), atol=1e-5)


@pytest.mark.parametrize("kind", ORTHOGONAL)
def test_in_float64_the_digits_are_those_of_torch(kind):
    """Of three matrices at once, as a convolution has them."""
    torch.manual_seed(1)
    layer = nn.Conv1d(3, 3, 4, groups=1).double()
    parametrizations.orthogonal(layer, orthogonal_map=kind)
    with torch.no_grad():
        layer.parametrizations.weight.original += torch.randn(3, 3, 4).double().mT.tril(-1).mT
    state = {f"conv.{key}": value.clone() for key, value in layer.state_dict().items()}
    weight = layer.weight.detach()
    assert fixed(state, {"conv.weight": weight, "conv.bias": layer.bias.detach()}, "--orthogonal-map", kind) == 0
    made = torch.load("out.pt", weights_only=True)["conv.weight"]
    assert torch.allclose(made, weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
@pytest.mark.parametrize("trivial", [True, False], ids=["with a base", "without"])
def test_without_a_word_nothing_is_computed_and_the_commands_are_offered(trivial, unsafe, capsys):
    """The three maps save the same, and give three matrices; a module of one's own may save it as well."""
    state, like, _ = trained((5, 5), "cayley", trivial)
    assert fixed(state, like, *unsafe) == 1
    said = capsys.readouterr().out
    assert "if it is torch.nn.utils.parametrizations.orthogonal" in said
    assert "--map" not in said
    assert all(f"--orthogonal-map {kind}" in said for kind in ORTHOGONAL)
    assert run(["check", "m.pt", "--like", "like.pt"]) == 1
    said = capsys.readouterr().out
    assert "N430" in said
    assert all(f"--orthogonal-map {kind}" in said for kind in ORTHOGONAL)


def test_of_what_is_not_torchs_no_command_is_offered(capsys):
    """Something else lies beside the original: no name makes a weight of it, and no map."""
    state, like, _ = trained((5, 5), "cayley", trivial=False)
    assert fixed(state | {"fc.parametrizations.weight.0.scale": torch.ones(())}, like, "--unsafe-fixes") == 1
    said = capsys.readouterr().out
    assert "no command can finish" in said
    assert "ckptdoctor fix" not in said


@pytest.mark.parametrize("kind", ORTHOGONAL)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_another_number_anywhere_is_no_proof(shape, kind):
    """What was written is found again in another way, each number of it."""
    state, _, weight = trained(shape, kind, dtype=torch.float64)
    parts = [state[f"fc.parametrizations.weight.{leaf}"] for leaf in ("original", "0.base")]
    given = [View(str(at), 0, 8, tuple(each.shape), each.stride()) for at, each in enumerate(parts)]
    made = Calculated(kind, tuple(given), ("float64",) * 2, (), "float64", 8, shape)

    def judge(tensor):
        data = tensor.contiguous().numpy().tobytes()

        def read(part, _):
            return iter([parts[int(part.source)].contiguous().numpy().tobytes()])

        require_calculated(made, read, lambda at, length: data[at : at + length])

    judge(weight)
    for index in range(weight.numel()):
        bad = weight.clone(memory_format=torch.contiguous_format)
        bad.view(-1)[index] += 1e-9
        with pytest.raises(WriteError, match=kind):
            judge(bad)


class Symmetric(nn.Module):
    """A parametrization as torch's tutorial has one."""

    def forward(self, weight):
        return weight.triu() + weight.triu(1).mT


@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
def test_a_parametrization_of_ones_own_stays_as_it_is(unsafe, tmp_path, capsys):
    """Its original is not the weight, and nothing is written of it without a word."""
    layer = nn.Linear(4, 4)
    like = {f"fc.{key}": value.clone() for key, value in layer.state_dict().items()}
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert fixed({f"fc.{key}": value for key, value in layer.state_dict().items()}, like, *unsafe) == 1
    assert not (tmp_path / "out.pt").exists()
    assert "that the file does not name" in capsys.readouterr().out


TRAPS = {
    "a base of another size": lambda state: state.update({"fc.parametrizations.weight.0.base": torch.eye(4)}),
    "something beside it": lambda state: state.update({"fc.parametrizations.weight.1.scale": torch.ones(())}),
    "another dtype": lambda state: state.update({"fc.parametrizations.weight.0.base": torch.eye(5).double()}),
    "codes": lambda state: state.update({"fc.parametrizations.weight.original": torch.ones(5, 5, dtype=torch.int8)}),
    "not finite": lambda state: state["fc.parametrizations.weight.original"].fill_(float("nan")),
    "two originals": lambda state: state.update(
        {"fc.parametrizations.weight.original1": state.pop("fc.parametrizations.weight.original")}
    ),
}


@pytest.mark.parametrize("kind", ORTHOGONAL)
@pytest.mark.parametrize("trap", TRAPS)
def test_what_is_no_orthogonal_parametrization_is_refused(trap, kind, tmp_path):
    """Whatever map is said."""
    state, like, _ = trained((5, 5), kind)
    TRAPS[trap](state)
    assert fixed(state, like, "--orthogonal-map", kind, "--unsafe-fixes") == 1
    assert not (tmp_path / "out.pt").exists()


def test_a_map_alone_makes_no_sense(capsys):
    """It belongs to a target."""
    torch.save({"fc.weight": torch.ones(2, 2)}, "m.pt")
    assert run(["fix", "m.pt", "--orthogonal-map", "cayley"]) == 2
    assert "add --like OTHER or --model MODULE:NAME" in capsys.readouterr().err
