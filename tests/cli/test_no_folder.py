"""A shell, or a notebook, whose current folder somebody has removed: as when a run is deleted and made again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from tests.commands import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a folder that a process is in cannot be removed there")

_NOWHERE = "The current folder has been removed. Go to another one with cd, or give absolute paths."


@pytest.fixture
def path(tmp_path):
    """A checkpoint in a folder that is there."""
    path = tmp_path / "m.pt"
    torch.save({"module.a": torch.ones(3)}, path)
    return path


def nowhere(code, folder):
    """What this code prints in a folder that is gone.

    It is a file, as the command is: of Python 3.13.0 with ``-c`` NumPy cannot be imported there.
    """
    (folder / "gone").mkdir()
    script = folder / "script.py"
    script.write_text(f"import os\nos.chdir({str(folder / 'gone')!r})\nos.rmdir(os.getcwd())\n{code}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=True)
    return done.stdout.splitlines(), done.stderr.splitlines()


def command(*arguments):
    """Code that prints the exit status of a command."""
    return f"from ckptdoctor.cli.main import run; print('status', int(run({list(map(str, arguments))!r})))"


def test_absolute_paths_work_there(path, tmp_path):
    """With the settings of no project."""
    out = tmp_path / "fixed.pt"
    page = tmp_path / "page.html"
    lines = [
        *(command("check", path), command("fix", path, "-o", out), command("report", path, "-o", page)),
        *(command("audit", path, "-o", tmp_path / "store.db", "--jobs", 1), command("check", path, "--model", "x:X")),
    ]
    shown, complaints = nowhere("\n".join(lines), tmp_path)
    assert [line for line in shown if line.startswith("status")] == [
        "status 1",
        "status 0",
        "status 0",
        "status 1",
        "status 2",
    ]
    assert 'No module "x"' in complaints[-1] and out.exists() and page.exists() and "failed" not in "".join(complaints)


def test_relative_paths_are_refused_in_words(tmp_path):
    """By each command and function alike."""
    _, complaints = nowhere(command("latest", "."), tmp_path)
    assert complaints == [f"error: {_NOWHERE}"]
    code = "import ckptdoctor\ntry: ckptdoctor.latest('.')\nexcept ckptdoctor.UnreadableError as error: print(error)"
    assert nowhere(code, tmp_path)[0] == [_NOWHERE]
