"""A run on a real terminal, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.progress.emulator import Emulator

pty = pytest.importorskip("pty")
ROOT = Path(__file__).parents[3]


def play(tmp_path, *words, columns=80, rows=24, **environ):
    """Run the program on a pseudo-terminal: its exit status and all that it sent."""
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    inherited = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LD_LIBRARY_PATH")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.trainer.progress.watched_run", str(tmp_path / "run"), *words],
        cwd=ROOT,
        env={**inherited, "TERM": "xterm-256color", "LANG": "C.UTF-8", **environ},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    sent = b""
    try:
        while chunk := os.read(ours, 65536):
            sent += chunk
    except OSError:  # Linux: nobody has the other end open any more
        pass
    os.close(ours)
    return process.wait(60), sent.decode()


def screens(sent, columns=80, rows=24):
    """The emulator after the last character, and what it showed each time something was drawn."""
    emulator = Emulator(columns, rows)
    shown = []
    for part in sent.replace("\r\n", "\n").split("\r"):
        emulator.feed(part)
        shown.append(emulator.screen)
        emulator.feed("\r")
    return emulator, shown


def test_bars_come_and_go(tmp_path):
    """Bars move while the run goes on; at the end the screen holds the table and the next command."""
    status, sent = play(tmp_path)
    emulator, shown = screens(sent)
    assert status == 0
    steps = {line.split()[1] for screen in shown for line in screen.split("\n") if line.startswith("step ")}
    assert len(steps) > 3
    assert any("━" in screen and "128 + 128 images a step on cuda:0, cuda:1" in screen for screen in shown)
    assert "━" not in emulator.scrollback
    assert emulator.cursor_visible
    words = "".join(emulator.scrollback.split("check it")[1].split())  # a terminal may have wrapped them
    assert words == f"ckptdoctorcheck{tmp_path}/run/epoch-0002"
    assert {"metrics.jsonl", "curves.html"} == set(os.listdir(tmp_path / "run"))


def test_a_run_that_breaks_leaves_the_terminal_clean(tmp_path):
    """After an error the bars are gone and the cursor is back; what others printed is there, and the error."""
    status, sent = play(tmp_path, "crash")
    emulator, _ = screens(sent)
    assert status == 1
    lines = emulator.scrollback.split("\n")
    assert lines[-1] == "the run is broken"
    assert "a word from elsewhere" in lines
    assert sum(line.startswith("  1/2 ") for line in lines) == 1
    assert "━" not in emulator.scrollback
    assert emulator.cursor_visible


def test_a_dumb_terminal_gets_plain_lines(tmp_path):
    """With TERM=dumb not one escape character is sent."""
    status, sent = play(tmp_path, TERM="dumb")
    assert status == 0
    assert "\x1b" not in sent
    assert "epoch 2/2: train loss" in sent


def test_a_terminal_without_unicode_gets_ascii(tmp_path):
    """Where stdout cannot encode our signs, the run is shown with plain ones."""
    status, sent = play(tmp_path, PYTHONIOENCODING="ascii")
    assert status == 0
    assert sent.isascii()
    assert "% +" in sent
    assert "test accuracy" in sent
