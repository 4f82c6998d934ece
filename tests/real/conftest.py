"""The bench on which a checkpoint is brought to a model."""

from __future__ import annotations

import pytest
import torch

from tests.real.bench import Bench


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    """An empty folder, and the commands that are run in it."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    return Bench(tmp_path, capsys)
