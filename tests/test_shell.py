"""Commands that are shown can be pasted, whatever a file is called: they take their words from one place."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.shell import quote, split, word
from tests.broken_shards import folder
from tests.commands import run

PACKAGE = Path(__file__).parent.parent / "ckptdoctor"
DISTRIBUTED = Path(__file__).parent.parent / "sample_ckpts" / "trained" / "fsdp" / "dcp"
ANY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
# these quote for scripts that they write or start, which nothing escapes on the way, and "split" what was quoted
OWN = {"shell.py", "trainer/slurm.py", "tui/serving.py"}
NAMES = ["-model", "-", "two\nlines", "it's one", "a\x1b[2J"]


def asks_shlex(path):
    """Whether a module imports what quotes in its own way."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if "shlex" in names:
            return True
    return False


def test_one_place_quotes():
    """No other module asks shlex, which knows neither of leading dashes nor of what the terminal is not shown."""
    modules = list(PACKAGE.rglob("*.py"))
    assert len(modules) > 500
    assert {path.relative_to(PACKAGE).as_posix() for path in modules if asks_shlex(path)} == OWN


@given(ANY)
def test_words_are_split_again(text):
    """What was put together from words gives these words."""
    assert split(f"--drop {word(text)} {quote('-x')}") == ["--drop", text, "./-x"]


def pasted(line, cwd):
    """What bash makes of a line in which ckptdoctor is this one."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    script = f'ckptdoctor() {{ "{sys.executable}" -m ckptdoctor "$@"; }}\n{line}'
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    return subprocess.run([bash, "-c", script], cwd=cwd, env=environment, capture_output=True, check=False)


def commands(came):
    """The commands that were printed."""
    text = (came.stdout + came.stderr).decode()
    return re.findall(r"ckptdoctor (?:check|salvage|convert|fix|graft|undo) [^\n]*", text)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_shards(name, tmp_path):
    """The command that recovers what is intact names the folder as bash reads it."""
    folder(tmp_path / name, damage="missing")
    (line,) = [each for each in commands(run("check", "--", f"./{name}", cwd=tmp_path)) if "salvage" in each]
    came = pasted(line, tmp_path)
    assert came.returncode == 1, came
    assert (tmp_path / f"{name}.salvaged").is_dir()


@pytest.mark.parametrize("name", ["-model", "two\nlines"])
def test_a_name_as_it_was_given(name, tmp_path):
    """A name that begins with a dash is printed so that it is a path, also where an output is called after it."""
    shutil.copytree(DISTRIBUTED, tmp_path / name)
    lines = commands(run("check", "--", name, cwd=tmp_path))
    assert lines
    for line in lines:
        came = pasted(line, tmp_path)
        assert came.returncode == 0, (line, came)


@pytest.mark.parametrize("name", ["-model", "two\nlines"])
def test_a_repair_that_is_written_elsewhere(name, tmp_path):
    """The refusal to change a folder names a command that writes a repaired one, called after it."""
    folder(tmp_path / name)
    (line,) = commands(run("fix", "--drop", "model.layers.0.a.weight", "--", name, cwd=tmp_path))
    assert pasted(line, tmp_path).returncode == 0, line
    assert (tmp_path / f"{name}.fixed").is_dir()
