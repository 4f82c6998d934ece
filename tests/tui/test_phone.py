"""The width of a phone, as with --serve: names come before everything else."""

from __future__ import annotations

import shutil

import pytest
import torch

from tests.tui import browse, walk
from tests.tui.pairs import save_pair

PHONE = (44, 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two checkpoints that differ, and half of one of them."""
    folder = tmp_path_factory.mktemp("phone")
    save_pair(folder)
    for name in ("wrapped.pt", "whole.pt", "target.pt"):
        (folder / name).unlink()
    whole = (folder / "a.pt").read_bytes()
    (folder / "a_download_that_was_cut.pt").write_bytes(whole[: len(whole) * 2 // 3])
    shutil.copy(folder / "a.pt", folder / "checkpoint_of_epoch_41.pt")
    return folder


def test_every_screen_has_names(folder, monkeypatch):
    """Of files, tensors on both sides, and what can be saved; a finding has its code and what it says."""
    monkeypatch.chdir(folder)
    picker, contents = walk(".", (), ("text:_41", "enter"), size=PHONE)
    assert "checkpoint_of_epoch_41.pt" in picker and "✓ headers" in picker
    assert "• W301  the weights are" in contents
    compared = browse("a.pt", size=PHONE, other="b.pt")
    assert "conv1.weight" in compared and "[10, 32] ≠ [100, 32]" in compared
    assert "layer1.0.bn1.bias  intact" in browse("a_download_that_was_cut.pt", size=PHONE)


def test_a_long_name_is_whole(tmp_path):
    """It takes the room of its size, which the pane below has; a name that leaves room has its size next to it."""
    name = "h.0.post_attention_layernorm.weight"
    torch.save({name: torch.ones(64, 64), "h.1.bias": torch.ones(8), "h.1.w": torch.ones(9)}, tmp_path / "a.pt")
    shown = browse(tmp_path / "a.pt", "down", size=PHONE)
    assert "│     0.post_attention_layernorm.weight    │" in shown
    assert "│       bias                    32 bytes   │" in shown
