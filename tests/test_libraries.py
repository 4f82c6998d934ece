"""What holds the test run to its time: libraries of gigabytes are imported late, and by one worker only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.libraries import Library

ROOT = Path(__file__).parent.parent


def said(folder, test):
    """The exit status and the words of a test run under the rules of this one, where diffusers is an empty module."""
    (folder / "diffusers.py").write_text("")
    (folder / "test_it.py").write_text(test)
    options = ("-n", "0", "-q", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", "-p", "tests.conftest")
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    command = [sys.executable, "-m", "pytest", *options, "test_it.py"]
    done = subprocess.run(command, cwd=folder, env=paths, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_a_module_that_imports_one_by_being_collected_is_an_error(tmp_path):
    """Its name is said, and no test runs."""
    status, out = said(tmp_path, "import diffusers\n\ndef test_it(): pass\n")
    assert status == pytest.ExitCode.INTERRUPTED
    assert "test_it.py imports diffusers by being collected" in out


@pytest.mark.parametrize("marked", [False, True])
def test_only_a_test_with_the_mark_imports_one(tmp_path, marked):
    """Else both of two workers would come to import it."""
    mark = "@real\n" if marked else ""
    status, out = said(tmp_path, f"from tests.libraries import real\n\n{mark}def test_it(): import diffusers\n")
    assert status == (pytest.ExitCode.OK if marked else pytest.ExitCode.TESTS_FAILED)
    assert ("imports diffusers: mark it" in out) is not marked


def test_what_is_not_installed_skips_the_test_that_asks():
    """And asks for nothing before."""
    absent = Library("no_such_library")
    assert not hasattr(absent, "__wrapped__")
    with pytest.raises(pytest.skip.Exception, match="no_such_library"):
        _ = absent.anything
