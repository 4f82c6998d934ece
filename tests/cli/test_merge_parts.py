"""``merge --part NAME=FILE``: the parts of a model that were saved each by itself, as one state dict."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ckptdoctor.cli.main import run


class Model(nn.Module):
    """An encoder and a decoder of one shape, and a head."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)) for _ in range(2))
        self.head = nn.Linear(4, 2)


@pytest.fixture
def model(tmp_path, monkeypatch):
    """The model, its parts saved by themselves."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    made = Model()
    torch.save(made.encoder.state_dict(), "e.pt")
    save_file(made.decoder.state_dict(), "d.safetensors")
    torch.save(made.head.state_dict(), "h.pth")
    return made


@pytest.mark.parametrize("output", ["whole.pt", "whole.safetensors"])
def test_parts_become_the_model(model, output):
    """Files of both kinds; the model loads it strictly, bit for bit."""
    words = ["--part", "encoder=e.pt", "--part", "decoder=d.safetensors", "--part", "head=h.pth"]
    assert run(["merge", *words, "-o", output]) == 0
    whole = torch.load(output, weights_only=True) if output.endswith(".pt") else load_file(output)
    Model().load_state_dict(whole, strict=True)
    assert all(torch.equal(value, whole[key]) for key, value in model.state_dict().items())


def test_a_part_of_a_part_and_files_without_a_name(model):
    """A name may be a path of modules, and keys that are right already stay."""
    torch.save({"norm.weight": torch.ones(4)}, "rest.pt")
    assert run(["merge", "rest.pt", "--part", "model.encoder=e.pt", "-o", "whole.pt"]) == 0
    whole = torch.load("whole.pt", weights_only=True)
    assert set(whole) == {"norm.weight", *[f"model.encoder.{key}" for key in model.encoder.state_dict()]}


def test_one_part_alone_gets_its_name(model):
    """The same as a prefix."""
    assert run(["merge", "--part", "encoder=e.pt", "-o", "whole.pt"]) == 0
    assert set(torch.load("whole.pt", weights_only=True)) == {f"encoder.{key}" for key in model.encoder.state_dict()}


def test_two_parts_of_one_name_do_not_mix(model, capsys):
    """The same keys with other values are refused."""
    assert run(["merge", "--part", "net=e.pt", "--part", "net=d.safetensors", "-o", "whole.pt"]) == 1
    assert "with different values" in capsys.readouterr().out


def test_what_is_more_than_one_part_is_refused(model, capsys):
    """A training checkpoint is not a part: what lies beside its weights would be lost."""
    torch.save({"state_dict": model.encoder.state_dict(), "epoch": 3}, "t.pt")
    assert run(["merge", "--part", "encoder=t.pt", "--part", "head=h.pth", "-o", "whole.pt"]) == 1
    assert "holds more than the tensors of one part" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [[], ["--part", "e.pt"], ["--part", "=e.pt"], ["--part", "encoder="], ["--part", "a=b"]]
)
def test_what_names_no_part_is_told(model, words):
    """Without a name, without a file, or with a file that is not there."""
    assert run(["merge", *words, "-o", "whole.pt"]) == 2


def test_options_of_convert_are_not_offered_as_those_of_merge(model, capsys):
    """A refusal says whose they are, and what to do; and that works."""
    torch.save({"model": model.encoder.state_dict(), "optimizer": {"state": {0: {"m": torch.ones(1)}}}}, "run.pt")
    assert run(["merge", "run.pt", "h.pth", "-o", "whole.safetensors"]) == 1
    assert "only convert has these options: convert each file first, and merge" in "".join(capsys.readouterr())
    assert run(["convert", "run.pt", "run.safetensors", "--root", "model"]) == 0
    assert run(["merge", "run.safetensors", "h.pth", "-o", "whole.safetensors"]) == 0
