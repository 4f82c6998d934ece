"""The notebook of the documentation is executed, in a real kernel, and shows what is kept in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_notebook_shows_what_it_says():
    """Every cell: cards, values by key, a repair, and an error that is explained below its traceback."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "tools/notebook.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment, timeout=220)
    assert done.returncode == 0, done.stdout + done.stderr
