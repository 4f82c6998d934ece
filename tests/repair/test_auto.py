"""``fix --auto``: the chain of repairs towards a target, real modules in and out."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from ckptdoctor.cli.main import run


class Net(nn.Module):
    """A convolution, norms, a list of layers and a head."""

    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3)
        self.bn1 = nn.BatchNorm2d(8)
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, classes)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a target to aim at."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    torch.save(Net().state_dict(), "target.pt")
    return tmp_path


def under(prefix, state_dict):
    """The same tensors under keys with a prefix."""
    return {prefix + key: value for key, value in state_dict.items()}


def renamed(old, new, state_dict):
    """The same tensors under keys with other words."""
    return {key.replace(old, new): value for key, value in state_dict.items()}


def lightning(model):
    """As Lightning saves it, with a loss beside the model."""
    state = {**under("model.", model.state_dict()), "criterion.weight": torch.ones(3)}
    return {"pytorch-lightning_version": "2.6.0", "epoch": 3, "state_dict": state}


def of_tensorflow(state_dict):
    """With the names that TensorFlow gives to norms."""
    return renamed("norm.bias", "norm.beta", renamed("norm.weight", "norm.gamma", state_dict))


CASES = {
    "bare": lambda model: model.state_dict(),
    "data parallel": lambda model: nn.DataParallel(model).state_dict(),
    "wrapped twice": lambda model: {"model": under("module._orig_mod.", model.state_dict())},
    "lightning": lightning,
    "averaged": lambda model: torch.optim.swa_utils.AveragedModel(model).state_dict(),
    "gamma and beta, nested and wrapped": lambda model: {"net": under("module.", of_tensorflow(model.state_dict()))},
    "another container": lambda model: renamed("layers.", "blocks.", model.state_dict()),
    "a whole model": lambda model: nn.DataParallel(model),
    "slashes": lambda model: renamed(".", "/", model.state_dict()),
}


@pytest.mark.parametrize("name", CASES)
def test_the_target_loads_what_comes_out(name, folder):
    """After --auto the target takes the file with strict=True, and has the very values that were saved."""
    model = Net()
    torch.save(CASES[name](model), "sick.pt")
    assert run(["fix", "sick.pt", "--auto", "--like", "target.pt", "-o", "well.pt"]) == 0
    path = "well.pt" if (folder / "well.pt").exists() else "sick.pt"  # one needs no repair
    target = Net()
    target.load_state_dict(torch.load(path, weights_only=True), strict=True)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in target.state_dict().items())


def test_the_steps_say_how_much_fits(folder, capsys):
    """Each step of the plan says how many keys fit after it."""
    torch.save(CASES["gamma and beta, nested and wrapped"](Net()), "sick.pt")
    assert run(["fix", "sick.pt", "--auto", "--like", "target.pt", "-o", "well.pt"]) == 0
    said = capsys.readouterr().out
    fits = [line.rpartition("   ")[2] for line in said.splitlines() if line.endswith("keys fit")]
    assert fits == ["0 of 17 keys fit", "15 of 17 keys fit", "17 of 17 keys fit"]


def refusal(capsys, *options):
    """What is said when nothing is done."""
    capsys.readouterr()
    assert run(["fix", "sick.pt", "--auto", "--like", "target.pt", "-o", "well.pt", *options]) == 1
    return capsys.readouterr().out


def test_a_head_of_another_size_is_refused(folder, capsys):
    """What cannot fit is named, and nothing is written."""
    torch.save(Net(5).state_dict(), "sick.pt")
    assert refusal(capsys) == (
        "refused · no chain of repairs makes this file fit target.pt: 15 of 17 keys would fit.\n  shape "
        "mismatch: fc.weight, fc.bias\n  to see what each of them means: ckptdoctor check sick.pt --like "
        "target.pt\n  no command can finish: nothing in this file can be identified as fc.weight [10, 8] and "
        "1 more\n"
    )
    assert not (folder / "well.pt").exists()


def test_another_model_is_refused(folder, capsys):
    """Weights of another model are never made to fit."""
    torch.save(nn.LSTM(4, 5).state_dict(), "sick.pt")
    assert "refused · no chain of repairs makes this file fit target.pt: 0 of 17 keys would fit." in refusal(capsys)


def test_two_sets_of_weights_are_a_choice(folder, capsys):
    """Raw and averaged weights both fit: --auto asks, and --root answers."""
    averaged = torch.optim.swa_utils.AveragedModel(Net())
    torch.save({"model": Net().state_dict(), "ema": averaged.state_dict()}, "sick.pt")
    assert refusal(capsys) == (
        "refused · more than one set of weights fits target.pt: choose one.\n"
        "  model, 17 of 17 keys: ckptdoctor fix sick.pt --root model --auto --like target.pt -o well.pt\n"
        "  ema, 17 of 17 keys: ckptdoctor fix sick.pt --root ema --auto --like target.pt -o well.pt\n"
    )
    command = ["fix", "sick.pt", "--auto", "--like", "target.pt", "-o", "well.pt", "--root", "ema"]
    assert run(command) == 0
    Net().load_state_dict(torch.load("well.pt", weights_only=True))


@pytest.mark.parametrize("more", [(), ("--unsafe-fixes",)])
def test_names_that_only_order_tells_are_never_written(more, folder, capsys):
    """A guess from the order of keys is named and refused in every mode; --rename says what is meant."""
    wanted = {f"block.{n}.{part}.weight": torch.rand(4, 4) for n in range(3) for part in ("alpha", "omega")}
    here = {f"block.{n}.{part}.weight": torch.rand(4, 4) for n in range(3) for part in ("x", "z")}
    torch.save(wanted, "target.pt")
    torch.save(here, "sick.pt")
    assert "some names can only be guessed from their order, and a guess is never written" in refusal(capsys, *more)
    assert not (folder / "well.pt").exists()
    said = ["--rename", "\\.z\\.=.alpha.", "--rename", "\\.x\\.=.omega."]
    assert run(["fix", "sick.pt", *said, "--auto", "--like", "target.pt", "-o", "well.pt"]) == 0
    well = torch.load("well.pt", weights_only=True)
    assert all(torch.equal(well[f"block.{n}.alpha.weight"], here[f"block.{n}.z.weight"]) for n in range(3))


def test_auto_needs_a_target(folder, capsys):
    """Without a target there is nothing to go towards."""
    assert run(["fix", "target.pt", "--auto"]) == 2
    assert "error: --auto needs a target" in capsys.readouterr().err


def test_a_map_repeats_the_repair_on_siblings(folder):
    """--write-map writes which key became which; --map does it again without a target, --reverse undoes it."""
    first, second = Net(), Net()
    torch.save(CASES["lightning"](first), "first.ckpt")
    torch.save(CASES["lightning"](second), "second.ckpt")
    assert run(["fix", "first.ckpt", "--auto", "--like", "target.pt", "-o", "a.pt", "--write-map", "map.json"]) == 0
    written = json.loads((folder / "map.json").read_text(encoding="utf-8"))
    assert written["root"] == "state_dict"
    assert written["names"]["model.fc.weight"] == "fc.weight"
    assert written["dropped"] == ["criterion.weight"]
    assert run(["fix", "second.ckpt", "--map", "map.json", "-o", "b.pt"]) == 0
    target = Net()
    target.load_state_dict(torch.load("b.pt", weights_only=True))
    assert torch.equal(target.fc.weight, second.fc.weight)
    assert run(["fix", "b.pt", "--map", "map.json", "--reverse", "-o", "c.pt"]) == 0
    assert list(torch.load("c.pt", weights_only=True)) == list(under("model.", target.state_dict()))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "map.json is not a name map: --write-map writes one."),
        ("{", "map.json is not a name map: "),
        ('{"format": "ckptdoctor map 1", "names": 3}', "it wants a root, names and what was dropped."),
        (
            '{"format": "ckptdoctor map 1", "root": "", "names": {"a": "b", "c": "d"}}',
            "--map names keys that this file does not have: it belongs to other checkpoints.",
        ),
    ],
)
def test_a_map_that_does_not_belong_here_is_refused(text, sentence, folder, capsys):
    """A file that is no map, or the map of other names, is one sentence."""
    (folder / "map.json").write_text(text, encoding="utf-8")
    assert run(["fix", "target.pt", "--map", "map.json"]) in (1, 2)
    said = capsys.readouterr()
    assert sentence in said.out + said.err
