"""The picture of the browser in the README."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import pytest
import torch

from ckptdoctor.tui.widgets import detail
from tests.tui import browse

PICTURE = Path(__file__).parents[2] / "docs" / "browser.svg"
SIZE = (116, 34)
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
    monkeypatch.setattr(detail, "REST", 0.01)
    return "epoch41.pt"


def drawn(app):
    """The screen as a picture that needs nothing from elsewhere."""
    picture = FONTS.sub("", app.export_screenshot(title="ckptdoctor epoch41.pt"))
    picture = re.sub(r"<!-- .*? -->", "", picture)
    picture = re.sub(r"font-family: ?[^;]*;", f"font-family: {MONOSPACE};", picture)
    return re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE)


def words(picture):
    """The texts in it; colours and places differ between versions of Textual."""
    found = re.findall(r"<text [^>]*>(.*?)</text>", picture, re.DOTALL)
    return " ".join(html.unescape(" ".join(found)).split())


def test_the_picture_is_up_to_date(training):
    """``docs/browser.svg`` shows what the browser shows today; UPDATE_GOLDEN=1 draws it anew."""
    keys = ("e", "tab", "tab", "down", "enter", "text:")  # read every byte, and go to the NaN that is found
    picture = browse(training, *keys, size=SIZE, look=drawn)
    if os.environ.get("UPDATE_GOLDEN"):
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(picture, encoding="utf-8")
    shown = PICTURE.read_text(encoding="utf-8")
    assert re.findall(r"https?:[^\"]*", shown) == ["http://www.w3.org/2000/svg"]
    assert words(shown) == words(picture)
