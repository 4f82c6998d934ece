"""Models that were trained under weight norm or spectral norm, and targets without: the weights are computed."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from ckptdoctor.cli.main import run
from tests.libraries import real, transformers

pytestmark = pytest.mark.filterwarnings("ignore")

SOUND = torch.rand(2, 4, 12)
NORMS = {
    "old weight norm": (weight_norm, "N412"),
    "weight norm": (parametrizations.weight_norm, "N412"),
    "old spectral norm": (spectral_norm, "N413"),
    "spectral norm": (parametrizations.spectral_norm, "N413"),
}


def plain(module):
    """No norm."""
    return module


def vocoder(norm, seed=0):
    """Convolutions with a norm, square and transposed ones among them, and one without."""
    torch.manual_seed(seed)
    layers = [norm(nn.Conv1d(4, 8, 3)), norm(nn.Conv1d(8, 8, 3, padding=1)), norm(nn.ConvTranspose1d(8, 8, 3))]
    made = nn.Sequential(*layers, nn.ReLU(), norm(nn.ConvTranspose1d(8, 6, 3)), nn.Conv1d(6, 2, 1))
    for _ in range(30):  # spectral norm finds u and v step by step
        made(SOUND)
    return made.eval()


@pytest.mark.parametrize("name", NORMS)
def test_the_plain_model_loads_it_and_computes_the_same(name, bench):
    """All weights are computed, whatever the API, and nothing else changes."""
    norm, code = NORMS[name]
    model, target = vocoder(norm), vocoder(plain, 1)
    expected = model(SOUND)
    assert bench.repair(model.state_dict(), target, "--unsafe-fixes") == [code]
    assert torch.allclose(target(SOUND), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NORMS)
def test_without_unsafe_fixes_it_says_what_to_add(name, bench):
    """Values are computed: that is asked for, never done alone, and check names one cause."""
    norm, code = NORMS[name]
    said = bench.refuse(vocoder(norm).state_dict(), vocoder(plain))
    assert "compute 4 weights of" in said
    assert "ckptdoctor fix sick.pt --unsafe-fixes --auto" in said
    assert list(bench.findings()) == [code]


def test_a_direction_is_never_taken_for_a_weight(bench):
    """Where a norm cannot be computed, its direction is not renamed to the weight either: its shape alone would fit."""
    saved = {
        key: value.int() if "weight_" in key else value for key, value in vocoder(weight_norm).state_dict().items()
    }
    said = bench.refuse(saved, vocoder(plain), "--unsafe-fixes")
    assert "left over: 0.weight_g, 0.weight_v" in said


def test_every_weight_of_a_module(bench):
    """Weight norm of other names than weight, as recurrent layers have them."""
    torch.manual_seed(0)
    model, target = nn.LSTM(4, 5), nn.LSTM(4, 5)
    sound = torch.rand(3, 2, 4)
    model = weight_norm(parametrizations.weight_norm(model, "weight_ih_l0"), "weight_hh_l0")
    expected, _ = model(sound)
    saved = model.state_dict()
    assert "weight_hh_l0_g" in saved
    assert bench.repair(saved, target, "--unsafe-fixes") == ["N412"]
    assert torch.allclose(target(sound)[0], expected, atol=1e-6)


def test_a_model_of_ones_own(bench, monkeypatch):
    """``--model`` with the user's own code, into safetensors' neighbour format of torch and back to the module."""
    (bench.folder / "nets.py").write_text(
        "from torch import nn\n"
        "def generator():\n"
        "    return nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Conv1d(8, 2, 1))\n"
    )
    monkeypatch.syspath_prepend(str(bench.folder))
    torch.manual_seed(0)
    model = nn.Sequential(weight_norm(nn.Conv1d(4, 8, 3)), nn.ReLU(), weight_norm(nn.Conv1d(8, 2, 1), dim=None)).eval()
    torch.save({f"module.{key}": value for key, value in model.state_dict().items()}, "sick.pt")
    options = ["--auto", "--model", "nets:generator", "-o", "well.pt"]
    assert run(["fix", "sick.pt", *options]) == 1
    assert "ckptdoctor fix sick.pt --unsafe-fixes --auto" in bench.capsys.readouterr().out
    assert run(["fix", "sick.pt", *options, "--unsafe-fixes"]) == 0
    said = bench.capsys.readouterr().out
    assert "N412 weightnorm-format" in said
    import nets

    target = nets.generator()
    target.load_state_dict(torch.load("well.pt", weights_only=True), strict=True)
    assert torch.allclose(target(SOUND), model(SOUND), rtol=1e-5, atol=1e-6)
    sys.modules.pop("nets")


@real
def test_a_vocoder_of_transformers(bench):
    """A HiFi-GAN as it is trained, into one whose weight norm was removed."""
    config = transformers.SpeechT5HifiGanConfig(
        model_in_dim=4, upsample_initial_channel=8, upsample_rates=[2], upsample_kernel_sizes=[4],
        resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]],
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.SpeechT5HifiGan(config).eval()
    model.apply_weight_norm()
    target = transformers.SpeechT5HifiGan(config).eval()
    expected = model(SOUND.transpose(1, 2))
    assert bench.repair(model.state_dict(), target, "--unsafe-fixes") == ["N412"]
    assert torch.allclose(target(SOUND.transpose(1, 2)), expected, rtol=1e-4, atol=1e-6)
