"""Where torch is not installed every command works, or says in one sentence what installs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ckptdoctor.cli.main import COMMANDS
from ckptdoctor.crash import installing
from tests import smoke

# finds all modules but torch, as if it were not installed; Python imports it before anything else
BLOCKING = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *rest):
        return None if name.partition(".")[0] == "torch" else self.finder.find_spec(name, *rest)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Without(each) for each in sys.meta_path]
"""


def test_every_command_is_asked():
    """The smoke has each of them, and each kind of target that runs code of torch."""
    assert set(COMMANDS) - {each.command for each in smoke.CASES} == set()


class Watcher:
    """A hook as setuptools has one, which warns of whoever looks for pip."""

    def find_spec(self, name, path=None, target=None):
        """Refuse pip, and know nothing else."""
        assert name != "pip"


def test_what_installs_torch_is_found_past_the_hooks_of_others(monkeypatch):
    """The sentence comes without a warning of setuptools, also where a program has imported distutils."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(sys, "meta_path", [Watcher(), *sys.meta_path])
    assert installing() == "/nowhere/python -m pip install"


@pytest.fixture
def without_torch(tmp_path):
    """The environment of processes that do not find torch."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKING, encoding="utf-8")
    places = [str(tmp_path), str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


@pytest.fixture
def folder(tmp_path):
    """An empty one."""
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def test_what_needs_torch_names_what_installs_it(without_torch, folder):
    """It ends with that one sentence and no traceback, from the command line and from Python."""
    smoke.prepare(folder)
    asked = smoke.Case(
        ("-c", "from importlib.util import find_spec; assert find_spec('click') and not find_spec('torch')")
    )
    wrong = [
        smoke.failure(case, folder, without_torch, False)
        for case in (asked, *smoke.CASES)
        if case.torch or case is asked
    ]
    assert len(wrong) > 7 and not any(wrong), wrong


@pytest.mark.slow
def test_everything_else_works_without_torch(without_torch, folder):
    """Every command and function, one after the other; the continuous integration asks them without any torch."""
    assert smoke.failures(folder, without_torch, torch=False) == []
