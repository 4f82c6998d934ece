"""Every style of saving, and the choices that are refused before training begins."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from safetensors import safe_open
from torch import nn

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.checks import require_styles
from ckptdoctor.trainer.config import SAVES, STRATEGIES, RunConfig
from ckptdoctor.trainer.snapshot import dcp
from ckptdoctor.trainer.snapshot.folders import Position
from ckptdoctor.trainer.snapshot.save import save
from ckptdoctor.trainer.snapshot.styles import BY_NAME, styles_of
from tests.trainer.snapshot.toy import ALONE, Toy


def test_every_style_is_there():
    """The table of styles and the choices of the command line are the same."""
    assert {*BY_NAME, dcp.FOLDER} == set(SAVES)
    assert len({style.file for style in BY_NAME.values()}) == len(BY_NAME)


def test_the_average_comes_with_it():
    """A run that averages also writes the averaged model."""
    assert [style.file for style in styles_of(RunConfig(save=("legacy", "plain")))] == ["model.pt", "legacy.pt"]
    assert [style.file for style in styles_of(RunConfig(save=("wrapped",), ema=True))] == ["wrapped.pt", "ema.pt"]
    assert styles_of(RunConfig(save=("dcp",))) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_whole_needs_a_whole_module(strategy):
    """A whole model cannot be saved where there is none; everything else can be saved by every strategy."""
    require_styles(RunConfig(strategy=strategy, save=tuple(style for style in SAVES if style != "whole")))
    config = RunConfig(strategy=strategy, save=("plain", "whole"))
    if strategy != "manual":
        require_styles(config)
        return
    with pytest.raises(
        UsageError, match=f"--save whole does not work with --strategy {strategy}, .*; use --save plain"
    ):
        require_styles(config)


def test_unknown_style():
    """A style that does not exist is refused with those that do."""
    with pytest.raises(UsageError, match=r"--save: .onnx. is not a checkpoint format\. Use plain, wrapped, whole"):
        require_styles(RunConfig(save=("plain", "onnx")))


def test_malformed_tag():
    """A device tag that nobody writes is refused before training, not when the first epoch is done."""
    with pytest.raises(UsageError, match=r"--tag-device: torch\.save never writes the device gpu"):
        require_styles(RunConfig(tag_device="gpu"))


def test_without_safetensors(monkeypatch):
    """Without the package, the style of that name is refused with what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install safetensors"):
        require_styles(RunConfig(save=("safetensors",)))


class Tied(nn.Module):
    """Two layers that share a weight, and a weight that is not in the order of rows."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight
        self.mixed = nn.Parameter(torch.arange(6.0).reshape(2, 3).t())


class TiedToy(Toy):
    """A strategy around it whose state dict has the ties of the model."""

    def __init__(self, config):
        super().__init__(config)
        self.model = self.wrapped = Tied()

    def state_dict(self):
        return dict(self.model.state_dict())

    wrapped_state_dict = state_dict


def test_ties_and_strides_in_safetensors(tmp_path):
    """Safetensors, which has neither, gets every name with its own rows in order; torch keeps ties and strides."""
    config = RunConfig(out=str(tmp_path), save=("plain", "safetensors", "legacy"))
    strategy = TiedToy(config)
    folder = save(config, strategy, ALONE, Position(1))
    state = strategy.model.state_dict()
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert all(torch.equal(file.get_tensor(key), state[key]) for key in state)
        assert set(file.keys()) == set(state)
    for name in ("model.pt", "legacy.pt"):
        loaded = torch.load(folder / name)
        assert loaded["embed.weight"].data_ptr() == loaded["head.weight"].data_ptr()
        assert loaded["mixed"].stride() == (1, 3)
        assert all(torch.equal(loaded[key], state[key]) for key in state)


def test_files_are_for_everybody(tmp_path):
    """All files have the permissions that a new file has."""
    config = RunConfig(out=str(tmp_path), save=("plain", "safetensors"))
    folder = save(config, Toy(config), ALONE, Position(1))
    (tmp_path / "new").touch()
    assert {path.stat().st_mode for path in folder.iterdir()} == {(tmp_path / "new").stat().st_mode}


def test_saving_changes_nothing(tmp_path):
    """Model, optimizer and modes are after a save what they were before."""
    config = RunConfig(out=str(tmp_path), save=SAVES, ema=True)
    strategy = Toy(config, ALONE, nn.DataParallel, "module.")
    strategy.model.train()
    before = {key: (value.data_ptr(), value.clone()) for key, value in strategy.model.state_dict().items()}
    save(config, strategy, ALONE, Position(1))
    assert strategy.model.training
    assert strategy.wrapped.module is strategy.model
    after = strategy.model.state_dict()
    assert all(
        after[key].data_ptr() == address and torch.equal(after[key], value) for key, (address, value) in before.items()
    )
