import math

import pytest
import torch

from ckptdoctor.tui.widgets import values_preview


@pytest.fixture(scope="session")
def tensors(tmp_path_factory):
    """A folder with a checkpoint whose values are the same everywhere: plain arithmetic, no random numbers."""
    folder = tmp_path_factory.mktemp("tensors")
    steps = torch.arange(40 * 64, dtype=torch.float64)
    waves = ((steps * 0.7).sin() * (steps * 0.013).cos() * 0.1).view(40, 64)
    waves[:, 7] *= 9
    sick = waves.float()
    sick[3, 5], sick[20, 40], sick[21, 0] = math.nan, math.inf, -math.inf
    contents = {
        "epoch": 3,
        "matrix": sick,
        "conv": ((steps[:1152] * 1.3).sin() * 0.2).view(16, 8, 3, 3).bfloat16(),
        "line": (steps[:300] * 0.1).cos().half(),
        "labels": (steps[:90] % 10).long().view(9, 10),
        "number": torch.tensor(0.125),
        "nothing": torch.zeros(0, 4),
        "meta": torch.empty(3, 3, device="meta"),
        "a\x1b[31mb[bold]": torch.ones(2, 2),
    }
    torch.save(contents, folder / "values.pt")
    return folder


@pytest.fixture(autouse=True)
def in_the_folder(tensors, monkeypatch):
    """Paths are short and the same on every machine."""
    monkeypatch.chdir(tensors)


@pytest.fixture(autouse=True)
def previews(no_previews, monkeypatch):
    """Values are read as they are for people; ``"text:"`` waits for them."""
    monkeypatch.setattr(values_preview, "REST", 0.08)
