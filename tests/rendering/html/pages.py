"""Checkpoints for pages, and pages of them."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import torch

from tests.commands import run_here

HOSTILE = '<img src=x onerror="document.title=1337">'
CLOSING = "</script><script>document.title=1337</script>"


def page(path, other=None, deep=True) -> str:
    """The page of a file, as the command writes it."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [path, *([other] if other else []), *([] if deep else ["--headers-only"])]
        written = Path(folder) / "page.html"
        result = run_here("report", *arguments, "-o", written, cwd=folder)
        assert result.returncode == 0, result.stderr
        return written.read_text(encoding="utf-8")


def data(text: str) -> dict:
    """The data that a page carries."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def transformer(layers: int = 4, seed: int = 0) -> dict[str, torch.Tensor]:
    """The weights of a small model with blocks, one tied tensor and an outlier."""
    generator = torch.Generator().manual_seed(seed)
    made = {"wte.weight": torch.randn(50, 16, generator=generator)}
    for number in range(layers):
        made[f"h.{number}.attn.weight"] = torch.randn(16, 16, generator=generator) * (10 if number == 2 else 1)
        made[f"h.{number}.mlp.weight"] = torch.randn(64, 16, generator=generator) / 50
        made[f"h.{number}.mlp.bias"] = torch.zeros(64)
        made[f"h.{number}.norm.weight"] = torch.ones(16)
    made["lm_head.weight"] = made["wte.weight"]
    return made


def shelf(folder: Path) -> Path:
    """Files: healthy, tuned, wrapped with NaN in a training checkpoint, hostile, with many tensors."""
    state = transformer()
    torch.save(state, folder / "model.pt")
    tuned = {key: value.clone() for key, value in state.items()}
    tuned["h.1.attn.weight"] += 0.1
    del tuned["h.3.mlp.bias"]
    torch.save(tuned | {"score.weight": torch.randn(2, 16)}, folder / "tuned.pt")
    broken = {f"module.{key}": value.clone() for key, value in state.items()}
    broken["module.h.1.mlp.weight"][3, 4] = float("nan")
    torch.save({"epoch": 41, "state_dict": broken}, folder / "broken.pt")
    torch.save({f"{HOSTILE}.weight": torch.randn(4, 4), f"{CLOSING}.bias": torch.randn(4)}, folder / "hostile.pt")
    torch.save({f"m.{number}.weight": torch.randn(2) for number in range(700)}, folder / "many.pt")
    return folder
