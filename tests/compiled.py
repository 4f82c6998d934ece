"""Compiles what a run of tests imports, before its workers begin together: each of them would compile all of it.

``python -m tests.compiled NUMBER OF FILE...`` writes what pytest makes of one share of these files, as pytest itself
does when it first imports one. That takes a third of the time of collecting them, and all cores can help.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from _pytest.assertion import rewrite

# of these pytest rewrites the assertions, so it keeps them apart from what the interpreter compiles
REWRITTEN = ("test_*.py", "conftest.py")

# what most tests import of others, and pip was told not to compile
LARGEST = ("torch", "textual.app", "hypothesis.strategies", "jsonschema", "numpy.testing")


def compile_once(root, arguments, processes):
    """Compile the package, what it is tested with, and the tests in the folders and files that a run was asked for."""
    paths = [root / argument.split("::")[0] for argument in arguments]
    below = [file for path in paths for pattern in REWRITTEN for file in path.rglob(pattern)]
    files = sorted({str(file) for file in (*below, *paths) if file.is_file()})
    lines = [
        ["-c", f"import {', '.join(LARGEST)}"],
        ["-m", "compileall", "-q", "-x", r"[\\/](test_[^\\/]*|conftest)\.py$", "ckptdoctor", "tests"],
        *(["-m", "tests.compiled", str(at), str(processes), *files] for at in range(processes)),
    ]
    # what fails in them fails in each worker again, and is told there
    quiet = {"cwd": root, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for started in [subprocess.Popen([sys.executable, *line], **quiet) for line in lines]:
        started.wait()


def compile_one(path):
    """Write what pytest makes of one file, where it looks for that."""
    made = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
    made.parent.mkdir(exist_ok=True)
    of_what, code = rewrite._rewrite_test(path, None)
    rewrite._write_pyc(None, code, of_what, made)


if __name__ == "__main__":
    number, of = map(int, sys.argv[1:3])
    for each in sys.argv[3:][number::of]:
        compile_one(Path(each))
