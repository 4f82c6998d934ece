"""Random damage to files never gives anything but an answer. ``pytest -m slow --whole`` looks for an hour."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import worker

ROOT = Path(__file__).parents[2]
AN_HOUR = 3600.0


def fuzz(kind, seed, seconds):
    """How many cases the fuzzer tried."""
    command = [sys.executable, "-m", "tests.fuzz.worker", kind, str(seed), str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds + 120)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return int(done.stdout.split()[0])


def test_some_mutated_files_give_answers_only():
    """Reader, pickle machine, rules, writer and loader meet a few mutated files with findings or one clear error."""
    assert fuzz("bytes", 0, 0.5) >= worker.AT_LEAST


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bytes", "commands"])
def test_mutated_files_give_answers_only(kind, scale):
    """The same, and every command on files and folders of all kinds, for as long as was asked for."""
    assert fuzz(kind, scale.seed, AN_HOUR if scale.whole else 1.5 * scale.seconds) > worker.AT_LEAST
