"""In a real terminal: from a broken file to a repaired one that torch loads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

if shutil.which("tmux") is None:
    pytest.skip("tmux is not installed", allow_module_level=True)

PATIENCE = 60  # seconds


class Terminal:
    """A terminal of its own server, 100 × 30."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "tmux"
        self.run("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "-c", str(folder), "sh")
        self.run("set-option", "-g", "set-clipboard", "on")

    def run(self, *arguments: str) -> str:
        """One command of tmux."""
        done = subprocess.run(["tmux", "-S", str(self.socket), *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    def keys(self, *keys: str) -> None:
        """Press them."""
        self.run("send-keys", *keys)

    def screen(self) -> str:
        """What is to be seen."""
        return self.run("capture-pane", "-p")

    def wait(self, text: str) -> str:
        """Until this is to be seen."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            shown = self.screen()
            if text in shown:
                return shown
            time.sleep(0.05)
        raise AssertionError(f"{text!r} never came; instead\n{self.screen()}")


@pytest.fixture
def terminal(tmp_path):
    """A terminal that is gone afterwards."""
    found = Terminal(tmp_path)
    yield found
    found.run("kill-server")


def test_from_a_broken_file_to_a_repaired_one(terminal, library, tmp_path):
    """Open, choose, look at the plan, answer, open the result, leave; and torch loads it with the right keys."""
    shutil.copy(library / "resnet.pt", tmp_path / "broken.pt")
    before = (tmp_path / "broken.pt").read_bytes()
    terminal.keys(f"env -u COLUMNS -u LINES {sys.executable} -m ckptdoctor broken.pt; echo status $?", "Enter")
    terminal.wait("2 errors")
    terminal.keys("f")
    terminal.wait("layer{1..2}.{0..1}.conv1.weight")
    terminal.keys("y")
    terminal.wait("ckptdoctor fix broken.pt")
    assert terminal.run("show-buffer") == "ckptdoctor fix broken.pt"
    terminal.keys("Enter")
    shown = terminal.wait("write this file?")
    assert "broken.fixed.pt" in shown
    assert not (tmp_path / "broken.fixed.pt").exists()
    terminal.keys("Enter")
    terminal.wait("byte-identical")
    terminal.keys("o")
    terminal.wait("ckptdoctor  broken.fixed.pt")
    shown = terminal.wait("1 info")
    assert " error" not in shown
    assert "N401" not in shown
    terminal.keys("q")
    terminal.wait("status 0")
    loaded = torch.load(tmp_path / "broken.fixed.pt", weights_only=True)
    broken = {
        key.removeprefix("module.")
        for key in torch.load(library / "resnet.pt", "cpu", weights_only=False)["state_dict"]
    }
    assert set(loaded["state_dict"]) == broken
    assert loaded["epoch"] == 41
    assert (tmp_path / "broken.pt").read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["broken.fixed.pt", "broken.pt", "tmux"]
