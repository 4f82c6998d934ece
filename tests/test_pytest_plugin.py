"""The fixture ``assert_loads``, in runs of pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TEST = "import torch\ndef test_it(assert_loads):\n    assert_loads({path!r}, torch.nn.Linear(3, 2))\n"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One run over five files: the output of pytest."""
    folder = tmp_path_factory.mktemp("plugin")
    weights = torch.nn.Linear(3, 2).state_dict()
    torch.save(weights, folder / "good.pt")
    torch.save({f"module.{key}": value for key, value in weights.items()}, folder / "wrapped.pt")
    torch.save({"weight": weights["weight"]}, folder / "lacking.pt")
    torch.save(torch.nn.Linear(5, 2).state_dict(), folder / "wide.pt")
    for name in ("good", "wrapped", "lacking", "wide", "absent"):
        (folder / f"test_{name}.py").write_text(TEST.format(path=f"{name}.pt"))
    command = [sys.executable, "-m", "pytest", "-p", "ckptdoctor.pytest_plugin", "-p", "no:cacheprovider", "-rA"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, "--color=no"], cwd=folder, capture_output=True, text=True, check=False, env=environment, timeout=200
    )
    return done.stdout


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("good", "PASSED"), ("wrapped", "FAILED"), ("lacking", "FAILED"), ("wide", "FAILED"), ("absent", "FAILED")],
)
def test_only_what_loads_as_it_is_passes(ran, name, outcome):
    """A prefix, a missing key, another shape, or no file at all."""
    assert f"{outcome} test_{name}.py::test_it" in ran


def test_a_failure_shows_the_command_that_repairs_it(ran):
    """Without a traceback of ours."""
    assert "ckptdoctor fix wrapped.pt --strip-module" in ran
    assert "absent.pt" in ran and "pytest_plugin.py" not in ran


def test_pytest_finds_it_by_itself():
    """The distribution names it as a plugin, and importing it brings none of ours."""
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\n"ckptdoctor.pytest_plugin" = "ckptdoctor.pytest_plugin"\n' in project
    code = (
        "import sys, ckptdoctor.pytest_plugin; print(*[name for name in sys.modules if name.startswith('ckptdoctor')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ckptdoctor", "ckptdoctor.pytest_plugin"]
