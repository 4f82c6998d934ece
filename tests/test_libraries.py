"""What holds the test run to its time: libraries come late and by one worker only, and slow tests can be sampled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.compiled import compile_one
from tests.libraries import Library
from tests.workers import OneFileOneWorker

ROOT = Path(__file__).parent.parent


def said(folder, test, *more):
    """The exit status and the words of a test run under the rules of this one, where diffusers is an empty module."""
    (folder / "diffusers.py").write_text("")
    (folder / "test_it.py").write_text(test)
    options = (
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
        "-p",
        "no:cacheprovider",
        "-p",
        "xdist",
        "-p",
        "tests.conftest",
        *more,
    )
    # no other plugin is asked, and looking for them takes longer than the test
    paths = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = [sys.executable, "-m", "pytest", *options, "."]
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


def test_what_needs_one_is_slow(tmp_path):
    """The first run has none of them installed."""
    test = "from tests.libraries import real\n\n@real\ndef test_it(): pass\n\ndef test_other(): pass\n"
    assert "1 passed, 1 deselected" in said(tmp_path, test, "-m", "not slow", "-W", "ignore")[1]


def test_a_sample_that_has_no_time_begins_nothing(tmp_path):
    """What it leaves is counted; with time it leaves nothing."""
    test = "def test_it(): pass\n\ndef test_other(): pass\n"
    assert "2 tests were not reached in 0 s" in said(tmp_path, test, "--for", "0")[1]
    out = said(tmp_path, test, "--for", "60")[1]
    assert "0 tests were not reached in 60 s" in out and "2 passed" in out


def test_a_slow_test_that_its_file_hides_is_an_error(tmp_path):
    """A run of slow tests imports only files in whose text it finds the mark."""
    (tmp_path / "marks.py").write_text("import pytest\n\nhidden = pytest.mark.slow\n")
    hidden = "from marks import hidden\n\n@hidden\ndef test_it(): pass\n"
    status, out = said(tmp_path, hidden, "-m", "not slow", "-W", "ignore")
    assert status == pytest.ExitCode.INTERRUPTED and "test_it.py has slow tests" in out
    status, out = said(tmp_path, f"# mark.slow\n{hidden}", "-m", "slow", "-W", "ignore")
    assert status == pytest.ExitCode.OK and "1 passed" in out


@pytest.mark.slow
def test_the_seed_of_a_sample_is_its_order(tmp_path):
    """The same seed asks the same files first, others ask others; a file stays together."""
    for name in "abcdef":
        (tmp_path / f"test_{name}.py").write_text("def test_1(): pass\n\ndef test_2(): pass\n")

    def order(seed):
        out = said(tmp_path, "", "--for", "60", "--seed", seed, "--collect-only")[1]
        return [line for line in out.splitlines() if "::" in line]

    assert order("3") == order("3") != order("4")
    assert sorted(order("3")) == sorted(order("4"))
    assert [line.partition("::")[0] for line in order("3")[::2]] == [
        line.partition("::")[0] for line in order("3")[1::2]
    ]


def test_what_was_compiled_before_is_what_pytest_takes(tmp_path):
    """Where it looks for it, and of the file as it is now."""
    path = tmp_path / "test_it.py"
    path.write_text("def test_it():\n    assert 1 == 2\n")
    compile_one(path)
    (made,) = (tmp_path / "__pycache__").iterdir()
    assert made.name == f"test_it{rewrite.PYC_TAIL}" and rewrite._read_pyc(path, made) is not None
    path.write_text("def test_it():\n    assert 1 == 2 + 3\n")
    assert rewrite._read_pyc(path, made) is None


def test_what_is_not_installed_skips_the_test_that_asks():
    """And asks for nothing before."""
    absent = Library("no_such_library")
    assert not hasattr(absent, "__wrapped__")
    with pytest.raises(pytest.skip.Exception, match="no_such_library"):
        _ = absent.anything


@pytest.mark.parametrize("first", [True, False])
def test_what_forks_from_one_process_is_for_one_worker_of_the_first_run(first):
    """Elsewhere it is shared out by files, as all else."""
    scheduler = object.__new__(OneFileOneWorker)
    scheduler._first = first
    forking = [scheduler._split_scope(f"tests/{file}.py::test_it[1]") for file in ("trainer/test_a", "cli/test_train")]
    assert len(set(forking)) == (1 if first else 2)
    assert scheduler._split_scope("tests/cli/test_fix.py::test_it") == "tests/cli/test_fix.py"
    assert scheduler._split_scope("tests/trainer/test_a.py::test_it@real") == "real"


def test_what_workers_say_arrives_whole(tmp_path):
    """A failure with its lines and output, a warning, a skip, an error of tearing down, and what killed its worker."""
    test = (
        "import os, pytest, warnings\n\n"
        "@pytest.fixture\ndef left():\n    yield\n    assert 5 == 6\n\n"
        "def test_passes(): warnings.warn('beware')\n\n"
        "def test_fails():\n    print('before it')\n    assert 1 == 2\n\n"
        "def test_skipped(): pytest.skip('not here')\n\n"
        "def test_torn(left): pass\n\n"
        "def test_kills(): os._exit(3)\n"
    )
    status, out = said(tmp_path, test, "-n", "1", "--dist", "loadgroup", "--max-worker-restart", "0", "-rs")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "2 failed, 2 passed, 1 skipped, 1 warning, 1 error" in out
    assert all(each in out for each in ("assert 1 == 2", "before it", "assert 5 == 6", "beware", "not here"))
    assert "crashed while running 'test_it.py::test_kills'" in out
