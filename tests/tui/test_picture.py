"""The pictures of the browser in README and docs."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import pytest
import torch

from ckptdoctor.tui.widgets import values_preview
from tests.tui import browse

DOCS = Path(__file__).parents[2] / "docs"
SIZE, TALL = (116, 34), (116, 40)
# Textual's own fonts come from another machine, and the picture would look different without it
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
MONOSPACE = '"DejaVu Sans Mono", Menlo, Consolas, monospace'


@pytest.fixture
def training(tmp_path, monkeypatch):
    """What a careless script saves of a ResNet that is trained by DistributedDataParallel."""
    torch.manual_seed(0)
    model = {"module.conv1.weight": torch.randn(64, 3, 7, 7) * 0.05}
    for stage in range(1, 5):
        for block in range(2):
            width = 32 << stage
            for number in (1, 2):
                name = f"module.layer{stage}.{block}"
                model[f"{name}.conv{number}.weight"] = torch.randn(width, width, 3, 3) * (2 / (9 * width)) ** 0.5
                for leaf, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
                    model[f"{name}.bn{number}.{leaf}"] = torch.randn(width) * 0.1 + value
    model["module.fc.weight"] = torch.randn(1000, 512) * 0.02
    model["module.fc.bias"] = torch.randn(1000) * 0.01
    model["module.layer3.1.conv2.weight"][7, 7, 1, 1] = float("nan")
    torch.save({"epoch": 41, "best_acc1": 71.3, "state_dict": model}, tmp_path / "epoch41.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(values_preview, "REST", 0.01)
    return "epoch41.pt"


def layers(seed=0):
    """A language model of sixty layers whose weights grow with depth."""
    random = torch.Generator().manual_seed(seed)
    found = {"model.embed_tokens.weight": torch.randn(512, 64, generator=random) * 0.02}
    shapes = {f"self_attn.{name}_proj": (64, 64) for name in "qkvo"}
    shapes |= {"mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64), "mlp.down_proj": (64, 128)}
    for layer in range(60):
        for name, shape in shapes.items():
            value = torch.randn(*shape, generator=random) * 0.02 * (1 + layer / 60)
            found[f"model.layers.{layer}.{name}.weight"] = value
        found[f"model.layers.{layer}.input_layernorm.weight"] = torch.ones(64)
    return found | {"model.norm.weight": torch.ones(64)}


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Such a model, of which one layer holds NaN; the same before its last layers were tuned; and a half of it."""
    monkeypatch.chdir(tmp_path)
    base, sick = layers(), layers()
    sick["model.layers.41.self_attn.q_proj.weight"][3, 5] = float("nan")
    sick["model.layers.17.mlp.up_proj.weight"].zero_()
    torch.save(base, "base.pt")
    torch.save(sick, "epoch41.pt")
    random = torch.Generator().manual_seed(1)
    tuned = {name: value.clone() for name, value in base.items()}
    for name, value in tuned.items():
        if any(f".layers.{layer}." in name for layer in range(48, 60)):
            value += 0.1 * value.norm() / value.numel() ** 0.5 * torch.randn(value.shape, generator=random)
    torch.save(tuned, "tuned.pt")
    whole = Path("base.pt").read_bytes()
    Path("download.pt").write_bytes(whole[: len(whole) * 6 // 10])


def drawn(app, title="ckptdoctor epoch41.pt"):
    """The screen as a picture that needs nothing from elsewhere."""
    picture = FONTS.sub("", app.export_screenshot(title=title))
    picture = re.sub(r"<!-- .*? -->", "", picture)
    picture = re.sub(r"font-family: ?[^;]*;", f"font-family: {MONOSPACE};", picture)
    return re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE)


def words(picture):
    """The texts in it; colours and places differ between versions of Textual."""
    found = re.findall(r"<text [^>]*>(.*?)</text>", picture, re.DOTALL)
    return " ".join(html.unescape(" ".join(found)).split())


def up_to_date(name, picture):
    """Hold a picture against ``docs/NAME.svg``; UPDATE_GOLDEN=1 draws it anew."""
    path = DOCS / f"{name}.svg"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(picture, encoding="utf-8")
    shown = path.read_text(encoding="utf-8")
    assert re.findall(r"https?:[^\"]*", shown) == ["http://www.w3.org/2000/svg"]
    assert words(shown) == words(picture)


def test_the_picture_is_up_to_date(training):
    """``docs/browser.svg`` shows what the browser shows today."""
    keys = ("e", "n", "n", "home", *["down"] * 4, "text:")  # read every byte, and look at the first convolution
    up_to_date("browser", browse(training, *keys, size=TALL, look=drawn))


@pytest.mark.usefixtures("trained")
def test_the_picture_of_layers_is_up_to_date():
    """Sixty layers in one line: sizes, norms by depth, and which of them are sick."""
    picture = browse("epoch41.pt", "e", "down", "down", size=SIZE, look=drawn)
    up_to_date("layers", picture)


@pytest.mark.usefixtures("trained")
def test_the_picture_of_a_comparison_is_up_to_date():
    """What fine-tuning has changed, by depth."""
    title = "ckptdoctor base.pt tuned.pt"
    up_to_date("comparison", browse("base.pt", "v", size=SIZE, look=lambda app: drawn(app, title), other="tuned.pt"))


@pytest.mark.usefixtures("trained")
def test_the_picture_of_damage_is_up_to_date():
    """What is intact in half a download."""
    picture = browse("download.pt", size=SIZE, look=lambda app: drawn(app, "ckptdoctor download.pt"))
    up_to_date("damage", picture)
    assert "#f4005f" not in picture  # Textual's red for reports: there is one red here, that of the theme
