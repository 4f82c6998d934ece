"""The fixture ``assert_loads``, in runs of pytest inside this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest_plugins = "pytester"

TEST = "import torch\ndef test_it(assert_loads):\n    assert_loads({path!r}, torch.nn.Linear(3, 2))\n"


@pytest.fixture
def outcome(pytester):
    """Runs one file of tests that loads one file of weights: the outcomes, and what pytest prints."""
    weights = torch.nn.Linear(3, 2).state_dict()
    torch.save(weights, "good.pt")
    torch.save({f"module.{key}": value for key, value in weights.items()}, "wrapped.pt")
    torch.save({"weight": weights["weight"]}, "lacking.pt")
    torch.save(torch.nn.Linear(5, 2).state_dict(), "wide.pt")

    def outcome(name: str) -> tuple[dict[str, int], str]:
        pytester.makepyfile(TEST.format(path=f"{name}.pt"))
        ran = pytester.runpytest_inprocess("-p", "ckptdoctor.pytest_plugin", "-p", "no:cacheprovider", "--color=no")
        return ran.parseoutcomes(), ran.stdout.str()

    return outcome


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [("good", {"passed": 1}), *((name, {"failed": 1}) for name in ("wrapped", "lacking", "wide", "absent"))],
)
def test_only_what_loads_as_it_is_passes(outcome, name, outcomes):
    """A prefix, a missing key, another shape, or no file at all fail, without a traceback of ours."""
    found, told = outcome(name)
    assert found == outcomes and "pytest_plugin.py" not in told
    assert name == "good" or f"{name}.pt" in told


def test_a_failure_shows_the_command_that_repairs_it(outcome):
    """As check would print it."""
    assert "ckptdoctor fix wrapped.pt --strip-module" in outcome("wrapped")[1]


def test_pytest_finds_it_by_itself():
    """The distribution names it as a plugin, and importing it brings none of ours."""
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\n"ckptdoctor.pytest_plugin" = "ckptdoctor.pytest_plugin"\n' in project
    code = (
        "import sys, ckptdoctor.pytest_plugin; print(*[name for name in sys.modules if name.startswith('ckptdoctor')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ckptdoctor", "ckptdoctor.pytest_plugin"]
