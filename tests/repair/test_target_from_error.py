"""``fix --auto --error``: the text of torch's own error as the target."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ckptdoctor.cli.main import run


class Net(nn.Module):
    """Layers under names of two tokens."""

    def __init__(self, classes=2):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 5, 3))
        self.head = nn.ModuleDict({"fc": nn.Linear(5, classes)})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    return tmp_path


def fail(saved, folder, name="error.txt", text=lambda said: said):
    """Save a file, and what torch says when the model loads all of it."""
    torch.save(saved, folder / "sick.pt")
    with pytest.raises(RuntimeError) as raised:
        Net().load_state_dict(saved)
    (folder / name).write_text(text(str(raised.value)))


CASES = {
    "in DataParallel": lambda net: nn.DataParallel(net).state_dict(),
    "compiled, in Lightning": lambda net: {f"model._orig_mod.{key}": value for key, value in net.state_dict().items()},
    "in a training checkpoint": lambda net: {"epoch": 3, "state_dict": nn.DataParallel(net).state_dict()},
    "averaged": lambda net: torch.optim.swa_utils.AveragedModel(net).state_dict(),
    "another container": lambda net: {key.replace("body.", "trunk."): each for key, each in net.state_dict().items()},
}


@pytest.mark.parametrize("name", CASES)
def test_the_model_loads_what_comes_out(name, folder, capsys):
    """Where only names differ, the text is enough; check names the same command."""
    net = Net()
    fail(CASES[name](net), folder)
    assert run(["fix", "sick.pt", "--auto", "--error", "error.txt", "-o", "well.pt"]) == 0
    target = Net()
    target.load_state_dict(torch.load("well.pt", weights_only=True), strict=True)
    assert all(torch.equal(value, net.state_dict()[key]) for key, value in target.state_dict().items())
    capsys.readouterr()
    run(["check", "sick.pt", "--error", "error.txt"])
    assert "--auto --error error.txt" in capsys.readouterr().out


def refused(capsys, *options):
    """What is said when nothing is done."""
    capsys.readouterr()
    assert run(["fix", "sick.pt", "--auto", "--error", "error.txt", *options]) == 1
    return capsys.readouterr().out


def test_a_missing_key_has_no_shape(folder, capsys):
    """Nobody could verify it: the sentence says what to give instead."""
    fail({key: value for key, value in Net().state_dict().items() if key != "head.fc.bias"}, folder)
    said = refused(capsys)
    assert (
        "does not give the shape that the model expects for head.fc.bias: give the target with --model or --like"
        in said
    )


def test_a_text_that_is_cut_short(folder, capsys):
    """A list that ends in the middle is no target."""
    fail(nn.DataParallel(Net()).state_dict(), folder, text=lambda said: said[: said.index("Unexpected") + 90])
    assert "give the target with --model or --like instead." in refused(capsys)


def test_what_does_not_fit_is_refused_as_always(folder, capsys):
    """Another shape, and keys that are left over."""
    fail(Net(classes=7).state_dict(), folder)
    assert "shape mismatch: head.fc.weight, head.fc.bias" in refused(capsys)
    fail({**Net().state_dict(), "more.layers.weight": torch.ones(3)}, folder)
    said = refused(capsys)
    assert "every key of " in said and " fits, but 1 key is left over: more.layers.weight" in said
    fail({**Net().state_dict(), "epoch": 3}, folder)
    assert "left over: epoch" in refused(capsys)


def test_what_the_error_does_not_name_is_no_trouble(folder):
    """The program takes the number out before it loads the rest; the error is about the rest."""
    saved = nn.DataParallel(Net()).state_dict()
    fail(saved, folder)
    torch.save({**saved, "epoch": 3}, folder / "sick.pt")
    assert run(["fix", "sick.pt", "--auto", "--error", "error.txt", "-o", "well.pt"]) == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--auto", "--error", "error.txt", "--like", "sick.pt"], "are different targets: give one."),
        (["--auto", "--error", "nothing.txt"], "nothing.txt cannot be read"),
        (["--auto", "--error", "other.txt"], "other.txt does not contain an error of load_state_dict"),
    ],
)
def test_requests_that_make_no_sense(options, sentence, folder, capsys):
    """Usage errors, in one sentence."""
    fail(nn.DataParallel(Net()).state_dict(), folder)
    (folder / "other.txt").write_text("Killed")
    assert run(["fix", "sick.pt", *options]) == 2
    assert sentence in capsys.readouterr().err


def test_a_target_implies_auto(folder):
    """What would a target be for otherwise: each way to name one repairs towards it."""
    fail(nn.DataParallel(Net()).state_dict(), folder)
    torch.save(Net().state_dict(), folder / "like.pt")
    for target in (["--error", "error.txt"], ["--like", "like.pt"]):
        assert run(["fix", "sick.pt", *target, "-o", "well.pt", "--force"]) == 0
        Net().load_state_dict(torch.load(folder / "well.pt"))


def test_values_that_are_no_tensors_do_not_pass(folder, capsys):
    """torch's strict loading refuses a number among the weights, and so does --auto."""
    torch.save({**Net().state_dict(), "epoch": 3}, "sick.pt")
    torch.save(Net().state_dict(), "like.pt")
    assert run(["fix", "sick.pt", "--auto", "--like", "like.pt"]) == 1
    assert "left over: epoch" in capsys.readouterr().out


def test_nothing_is_said_of_what_the_target_wants(folder, capsys):
    """A wrapped target has its prefix: that is no trouble left behind."""
    torch.save(Net().state_dict(), "sick.pt")
    torch.save(nn.DataParallel(Net()).state_dict(), "like.pt")
    assert run(["fix", "sick.pt", "--auto", "--like", "like.pt", "-o", "well.pt"]) == 0
    said = capsys.readouterr().out
    assert "N402" in said
    assert "N401" not in said
    assert "check finds nothing" in said
