"""Random damage to files never gives anything but an answer. ``--fuzz-seconds 600`` looks longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_mutated_files_give_answers_only(request):
    """Reader, pickle machine, rules and writer meet mutated files with findings or one clear error, quickly."""
    seconds = request.config.getoption("--fuzz-seconds")
    seed = request.config.getoption("--fuzz-seed")
    command = [sys.executable, "-m", "tests.fuzz.worker", str(seed), str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds + 120)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert int(done.stdout.split()[0]) > 10
