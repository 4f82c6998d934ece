"""Output that goes to a disk that is full, and streams that whoever started the command has closed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from tests.commands import ROOT

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no disk that is always full")


@pytest.fixture
def path(tmp_path):
    """A healthy file."""
    path = tmp_path / "m.pt"
    torch.save({"a": torch.arange(3.0)}, path)
    return path


def shell(line, *arguments):
    """A command line as a shell carries it out; $1 and $2 are the arguments."""
    words = ["sh", "-c", line.replace("ckptdoctor", f'"{sys.executable}" -m ckptdoctor'), "sh", *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ['check "$1"', 'check --format json "$1"', 'show "$1"', "--help"])
def test_a_full_disk_is_not_a_bug(path, command):
    """It is said in a line, and by the status where errors go to the same disk."""
    done = shell(f"ckptdoctor {command} > /dev/full", path)
    assert (done.returncode, done.stderr) == (2, "error: The output cannot be written: No space left on device.\n")
    done = shell(f"ckptdoctor {command} > /dev/full 2>&1", path)
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_as_if_nobody_read_them(path, closed, tmp_path):
    """And no file that is opened gets what is meant for them."""
    before = path.read_bytes()
    for command in ('check "$1"', "--version", 'convert "$1" "$2" --force'):
        done = shell(f"ckptdoctor {command} {closed}", path, tmp_path / "out.pt")
        assert done.returncode == 0 and "Error" not in done.stderr
    assert path.read_bytes() == before and torch.load(tmp_path / "out.pt")["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("broken", ["2>&-", "2>/dev/full"])
def test_a_note_that_cannot_be_written_does_not_cost_the_answer(path, broken):
    """Scripts take the path from stdout, whatever becomes of what is said about it."""
    done = shell(f'ckptdoctor latest "$1" {broken}', path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}\n", "")
