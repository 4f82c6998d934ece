"""README, help and changelog tell the truth."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from ckptdoctor.cli.main import COMMANDS, cli, run
from ckptdoctor.rules.registry import all_rules
from tests.trainer.forks import Forked, fork_ranks
from tools import readme

TEXT = readme.README.read_text(encoding="utf-8")


@pytest.mark.parametrize("block", readme.BLOCKS)
def test_generated_blocks_are_up_to_date(block):
    """Each marked block of the README is what the code says; python tools/readme.py writes it anew."""
    (found,) = re.findall(rf"<!-- begin: {block} -->\n(.*?)<!-- end: {block} -->", TEXT, re.DOTALL)
    assert found.strip("\n") == readme.BLOCKS[block]()


def option_names(command):
    """Every option that a command takes."""
    parameters = cli.get_command(click.Context(cli), command).params
    return {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


NAMES = "check|fix|show|explain|rules|train|convert|merge|salvage|graft|diff|report"


@pytest.mark.parametrize("line", re.findall(rf"ckptdoctor (?:{NAMES})\b[^`\n]*", TEXT))
def test_every_command_in_the_readme_parses(line):
    """Each command line of the README names a command, options and rule codes that exist."""
    _, command, *words = shlex.split(line.replace("&&", "").split("  ")[0])
    assert {word for word in words if word.startswith("--")} <= option_names(command)
    known = {rule.code for rule in all_rules()}
    assert {code for word in words for code in re.findall(r"\b[A-Z]\d{3}\b", word) if "/" not in word} <= known


def test_set_up_commands_are_one_line_each():
    """There are two set-up commands, each complete in itself: it makes the environment it needs."""
    lines = re.findall(r"^\$ (python3 -m venv .*)$", TEXT, re.MULTILINE)
    assert len(lines) == 2
    assert all(re.search(r"/pip install (--no-compile )?-c constraints\.txt ", line) for line in lines)


def test_python_examples_are_true():
    """The Python examples of the README use names and arguments that the package has."""
    import inspect

    import ckptdoctor

    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    calls = re.findall(r"ckptdoctor\.(\w+)\((.*?)\)", block)
    assert {name for name, _ in calls} == {"open", "check", "fix", "load", "load_state_dict"}
    for name, arguments in calls:
        keywords = set(re.findall(r"(\w+)=", arguments))
        assert keywords <= set(inspect.signature(getattr(ckptdoctor, name)).parameters)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_eighty_columns(command):
    """The help of each command says what it does and fits a terminal of 80 columns."""
    result = CliRunner().invoke(cli, [command, "--help"], terminal_width=80)
    assert result.exit_code == 0
    assert all(len(line) <= 80 for line in result.output.split("\n"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_offered(shell):
    """The line that the README names prints a completion script for each shell."""
    assert f"{shell}_source" in TEXT
    line = [sys.executable, "-m", "ckptdoctor"]
    environment = {**os.environ, "_CKPTDOCTOR_COMPLETE": f"{shell}_source"}
    result = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert "complet" in result.stdout and "ckptdoctor" in result.stdout


def test_hook_and_configuration_are_documented():
    """The pre-commit hook of the README is one that the project offers."""
    hooks = (readme.ROOT / ".pre-commit-hooks.yaml").read_text()
    assert "id: ckptdoctor-check" in hooks and "id: ckptdoctor-check" in TEXT


def typed(folder, *words):
    """What a command says, typed into a shell."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def forked(folder, *words):
    """The same in a process that need not import torch, with ranks that need not either."""
    process = Forked(_command, words[1:], cwd=folder)
    said, complaint = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, said, complaint)


def _command(words):
    fork_ranks()
    return run(list(words))


@pytest.mark.parametrize(
    ("network", "first_key", "entered"),
    [
        # the smallest network instead of that of the README
        ("foonet", "linears.0.weight", forked),
        pytest.param("lenet", "features.0.weight", typed, marks=pytest.mark.slow),
    ],
)
def test_the_two_minute_tour_goes_as_it_says(network, first_key, entered, tmp_path):
    """Its commands, typed one after another: train, a check that finds both diseases, one repair, and it loads."""
    import torch

    first, second = re.findall(r"^\$ (ckptdoctor (?:train|fix) .*tour.*)$", TEXT, re.MULTILINE)
    train, examine = first.replace(" lenet ", f" {network} ").split(" && ")
    assert entered(tmp_path, *shlex.split(train)).returncode == 0
    said = entered(tmp_path, *shlex.split(examine))
    assert said.returncode == 1
    assert "N401" in said.stdout and "D601" in said.stdout
    assert entered(tmp_path, *shlex.split(second)).returncode == 0
    keys = torch.load(tmp_path / "tour/epoch-0002/wrapped.fixed.pt", weights_only=True)
    assert next(iter(keys)) == first_key
