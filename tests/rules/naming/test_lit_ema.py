"""N428 lit-ema, with the buffers of LitEma."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ckptdoctor.cli.main import run
from ckptdoctor.edits import Safety
from ckptdoctor.findings import Severity
from tests.rules import nouns


class LitEma(nn.Module):
    """The buffers that ``ldm.modules.ema.LitEma`` registers: names without their dots."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.register_buffer("decay", torch.tensor(0.9999))
        self.register_buffer("num_updates", torch.tensor(0, dtype=torch.int))
        for name, parameter in model.named_parameters():
            self.register_buffer(name.replace(".", ""), parameter.detach().clone() + 1)


def _net() -> nn.Module:
    blocks = nn.ModuleList([nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4)) for _ in range(3)])
    return nn.ModuleDict({"blocks": blocks, "out": nn.Linear(4, 2)})


class Latent(nn.Module):
    """A model with its average beside it, as latent diffusion trains it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.ModuleDict({"diffusion_model": _net()})
        self.model_ema = LitEma(self.model)


def _findings(saved: nn.Module, target: nn.Module | None = None) -> list[Any]:
    described = nouns.described(saved.state_dict())
    return nouns.findings("N428", described, *([nouns.described(target.state_dict())] if target is not None else []))


def test_an_average_beside_the_weights_is_named() -> None:
    """Worth knowing, and no fault; nothing is proposed that drops it."""
    [found] = _findings(Latent())
    assert found.severity is Severity.INFO
    assert found.message.startswith('14 keys under "model_ema." are a running average')
    assert found.fix is None
    assert "--drop" not in found.advice


def test_an_average_alone_is_a_warning() -> None:
    """No model has such names."""
    [found] = _findings(LitEma(_net()))
    assert found.severity is Severity.WARNING
    assert "--auto --model" in found.advice


def test_the_whole_average_is_left_over() -> None:
    """The bare network does without; that it goes is for a person to say."""
    [found] = _findings(Latent(), _net())
    assert found.fix is not None
    assert (found.fix.safety, found.fix.option) == (Safety.UNSAFE, "--drop 'model_ema.*'")
    assert len(found.keys) == 16


def test_the_target_may_keep_the_average_too() -> None:
    """The model that was saved loads what it saved."""
    assert _findings(Latent(), Latent()) == []


@pytest.mark.parametrize("name", ["decay", "num_updates"])
def test_one_counter_alone_says_nothing(name: str) -> None:
    """Both are needed."""
    saved = {key: value for key, value in LitEma(_net()).state_dict().items() if key != name}
    assert nouns.findings("N428", nouns.described(saved)) == []


def test_an_average_becomes_the_model(tmp_path, monkeypatch) -> None:
    """``--auto`` gives the names their dots back, and drops the counters."""
    monkeypatch.chdir(tmp_path)
    net, average = _net(), LitEma(_net())
    torch.save(average.state_dict(), "ema.pt")
    torch.save(net.state_dict(), "like.pt")
    assert run(["fix", "ema.pt", "--auto", "--like", "like.pt", "-o", "well.pt"]) == 0
    net.load_state_dict(torch.load("well.pt"), strict=True)
    assert torch.equal(net["out"].weight, average.outweight)
