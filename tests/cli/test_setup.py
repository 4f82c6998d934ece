"""Completion of command lines: what is offered, and how it gets into a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from ckptdoctor.cli.main import COMMANDS, cli
from tests.commands import run_here

SHELLS = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ""}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder in which nothing is set up."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR", "SHELL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def offered(*words):
    """What is offered for the last of these words: values, or "file" where a shell completes files."""
    completer = ShellComplete(cli, {}, "ckptdoctor", "_CKPTDOCTOR_COMPLETE")
    found = completer.get_completions(list(words[:-1]), words[-1])
    return ["file" if each.type == "file" else each.value for each in found]


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (["ch"], ["check"]),
        (["mod"], ["file"]),  # a path alone is a command line
        (["check", "mod"], ["file"]),
        (["check", "--ext"], ["--extend-select"]),
        (["check", "--format", "s"], ["sarif"]),
        (["check", "--like", "mod"], ["file"]),
        (["model.pt", "--stat"], ["--statistics"]),
        (["check", "--select", "N401"], ["N401"]),
        (["check", "--select", "F005,module-pref"], ["F005,module-prefix", "F005,module-prefix-absent"]),
        (["explain", "N401"], ["N401"]),
        (["explain", "./"], ["file"]),
        (["fix", "m.pt", "-o", ""], ["file"]),
        (["fix", "m.pt", "--qkv", ""], ["file"]),
        (["train", "le"], ["lenet"]),
        (["setup", "c"], ["completion"]),
        (["setup", "completion", "f"], ["fish"]),
    ],
    ids=" ".join,
)
def test_what_is_offered(words, offers):
    """Commands, options, their values, rules and files."""
    if isinstance(words, str):
        words = words.split()
    assert offered(*words) == offers


def test_every_path_is_completed():
    """No argument or option that takes a path leaves a shell without an offer."""
    paths = {"path", "paths", "other", "a", "b", "donor", "parts", "output", "out", "data_dir", "source"}
    paths |= {"seal", "like", "model", "config", "error", "merge_adapter", "map_file", "write_map"}
    taken = [(name, each) for name in COMMANDS for each in cli.get_command(None, name).params if each.name in paths]
    assert [(name, each.name) for name, each in taken if each._custom_shell_complete is None] == []
    assert {each.name for _, each in taken} == paths


def test_all_rules_are_offered_by_code():
    """Names only once a word begins like one: there are hundreds."""
    assert all(len(each) == 4 for each in offered("explain", "")) and len(offered("explain", "")) > 100
    assert "module-prefix" in offered("explain", "mod")


@pytest.mark.parametrize(("shell", "settings"), SHELLS.items())
def test_installing_it_twice_changes_nothing(home, shell, settings):
    """What was written is said, all of it; the second time nothing is, and what was there before stays."""
    if settings:
        (home / settings).write_text("alias ll='ls -l'")  # without an end of its line
    first = run_here("setup", "completion", shell, "--install", cwd=home)
    files = {each: each.read_bytes() for each in home.rglob("*") if each.is_file()}
    script = next(path for path in files if path.name in (f"completion.{shell}", "ckptdoctor.fish"))
    assert first.returncode == 0 and first.stderr == b""
    said = first.stdout.decode().splitlines()
    assert said[0] == f"Wrote ~/{script.relative_to(home)}" and said[-1].endswith(f"source {script}")
    assert files[script] == run_here("setup", "completion", shell, cwd=home).stdout
    if settings:
        before, added = files[home / settings].decode().splitlines()
        assert before == "alias ll='ls -l'" and said[1] == f"Added a line to ~/{settings}: {added}"
    assert len(said) == len(files) + 1 and len(files) == (2 if settings else 1)
    again = run_here("setup", "completion", shell, "--install", cwd=home).stdout.decode()
    assert again.startswith(f"Nothing to do: ~/{script.relative_to(home)} is up to date") and again.count("\n") == 1
    assert files == {each: each.read_bytes() for each in home.rglob("*") if each.is_file()}
    script.write_text("older")
    assert run_here("setup", "completion", shell, "--install", cwd=home).stdout.decode().splitlines()[0] == said[0]
    assert files == {each: each.read_bytes() for each in home.rglob("*") if each.is_file()}


def test_the_own_shell(home, monkeypatch):
    """Without a name it is that of the environment; one for which there is no script is asked for."""
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert run_here("setup", "completion", cwd=home).stdout.startswith(b"#compdef ckptdoctor")
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    done = run_here("setup", "completion", cwd=home)
    assert (done.returncode, done.stdout) == (2, b"") and b"ckptdoctor setup completion bash" in done.stderr
    assert b"Did you mean 'zsh'" in run_here("setup", "completion", "zhs", cwd=home).stderr


def test_what_cannot_be_written_is_said(home):
    """One sentence, and status 2."""
    (home / ".local").write_text("in the way")
    done = run_here("setup", "completion", "bash", "--install", cwd=home)
    assert done.returncode == 2 and done.stderr.startswith(b"error: ") and b"cannot be" in done.stderr
    assert not (home / ".bashrc").exists()


# each prints what it offers for "ckptdoctor salv", once it has read its settings as an interactive shell does
ASK = {
    "bash": (
        "set -- ; source ~/.bashrc; COMP_WORDS=(ckptdoctor salv); COMP_CWORD=1; "
        "_ckptdoctor_completion ckptdoctor; echo ${COMPREPLY[@]}"
    ),
    "zsh": "source ~/.zshrc; print ${_comps[ckptdoctor]}",
    "fish": "complete -C 'ckptdoctor salv'",
}
ANSWER = {"bash": "salvage", "zsh": "_ckptdoctor_completion", "fish": "salvage"}


@pytest.mark.parametrize("shell", [each for each in SHELLS if shutil.which(each)])
def test_a_real_shell_completes(home, shell):
    """The installed script is loaded, and answers."""
    (home / "bin").mkdir()
    command = home / "bin" / "ckptdoctor"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ckptdoctor "$@"\n')
    command.chmod(0o755)
    run_here("setup", "completion", shell, "--install", cwd=home)
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    done = subprocess.run([shell, "-c", ASK[shell]], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.split()[:1], done.stderr) == ([ANSWER[shell]], "")  # fish shows what it does behind it
