"""The help of every command: its options in groups, examples that work, and an answer to every typo."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.main import COMMANDS, EXAMPLES, cli
from tests.commands import run_here
from tools.pages import examples

ASKED = {name: cli.get_command(click.Context(cli), name) for name in COMMANDS}
NOT_RUN = {"browse", "train", "watch"}  # these need a person, minutes, or a training to wait for


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """The files that examples are about."""
    folder = tmp_path_factory.mktemp("examples")
    examples.prepare(folder)
    examples.carry_out("ckptdoctor audit run -o store.db", folder)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_two_examples(name):
    """Each says what it does, and stands at the end of the help, in a line of its own."""
    command = ASKED[name]
    shown = command.get_help(click.Context(command, info_name=name, terminal_width=80))
    below = shown.split("\nExamples:\n")[1].splitlines()
    assert 2 <= len(command.examples) <= 3
    assert below == [line for meaning, typed in command.examples for line in (f"  {meaning}:", f"    {typed}")]
    assert all(shlex.split(typed)[:2] == ["ckptdoctor", name] for _, typed in command.examples)


def test_the_first_help_ends_in_examples():
    """They are those of the commands that most people need."""
    shown = cli.get_help(click.Context(cli, info_name="ckptdoctor", terminal_width=80))
    assert shown.split("\nExamples:\n")[1].splitlines()[1::2] == [f"    {typed}" for _, typed in EXAMPLES]
    assert {typed for _, typed in EXAMPLES} <= {typed for name in COMMANDS for _, typed in ASKED[name].examples}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in NOT_RUN])
def test_examples_work(name, shelf, monkeypatch):
    """Each does what it says, and is neither refused nor misunderstood."""
    for variable, value in (("HOME", str(shelf)), ("SHELL", "/bin/bash")):
        monkeypatch.setenv(variable, value)
    for _, typed in ASKED[name].examples:
        outcome = examples.carry_out(typed, shelf)
        assert outcome.status in (ExitStatus.CLEAN, ExitStatus.FINDINGS), f"{typed}: {outcome.printed}"
        assert not re.search(r"^(refused|error:)", outcome.printed, re.MULTILINE), outcome.printed
        for written in re.findall(r"^wrote (\S+\.(?:pt|safetensors))\b", outcome.printed, re.MULTILINE):
            assert ((shelf / written).read_bytes()[:2] == b"PK") is written.endswith(".pt"), written


@pytest.mark.parametrize("name", sorted(NOT_RUN))
def test_other_examples_are_understood(name):
    """What cannot be run here is at least parsed."""
    for _, typed in ASKED[name].examples:
        ASKED[name].make_context(name, shlex.split(typed)[2:])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_one_group(name):
    """Groups name options that there are, each once; of a command with several, every option is in one."""
    command = ASKED[name]
    named = [each for names in command.groups.values() for each in names]
    options = {each.name for each in command.params if isinstance(each, click.Option)}
    assert len(named) == len(set(named))
    assert set(named) == (options if len(command.groups) > 1 else set())


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["check", "m.pt", "--depp"], "No such option '--depp'. Did you mean '--deep'?"),
        (["check", "m.pt", "--strip-module"], "No such option '--strip-module'. It is an option of fix."),
        (["check", "m.pt", "--zzz"], "No such option '--zzz'."),
        (
            ["check", "m.pt", "--format", "jsn"],
            "Invalid value for '--format': 'jsn' is not one of full, concise, json, sarif, github, markdown. "
            "Did you mean 'json'?",
        ),
        (["train", "lenett"], "Invalid value for '[foonet|lenet|vgg|resnet]': 'lenett' is not one of foonet"),
        (["salvge", "m.pt"], "No such command 'salvge'. Did you mean 'salvage'?"),
        (["modle"], "No such command 'modle'. Did you mean 'model'?"),
        (["N401"], "No such command 'N401'. It is a rule: ckptdoctor explain N401"),
        (["xyzzy"], "No such command 'xyzzy'.\n"),
        (["help"], "No such command 'help'. Did you mean '--help'?"),
        (["diff", "m.pt"], "Missing argument 'B'."),
        (["setup"], "Missing argument 'completion'. Use one of completion"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_typo_is_answered_with_what_was_meant(typed, said, tmp_path):
    """One line on what is wrong, one on how the command is used, one on its help; the status is 2."""
    (tmp_path / "model").mkdir()
    done = run_here(*typed, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == b""
    assert done.stderr.decode().startswith(f"error: {said}")
    assert [line.split(" ")[0] for line in done.stderr.decode().splitlines()] == ["error:", "Usage:", "Help:"]


def test_a_file_called_like_an_option(tmp_path):
    """It is answered with the way to name it."""
    (tmp_path / "-x.pt").write_bytes(b"")
    assert run_here("check", "-x.pt", cwd=tmp_path).stderr.endswith(b"A file has this name: write ./-x.pt\n")


QUIET = [
    ["check", "base.pt"],
    ["check", "base.pt", "--format", "concise"],
    ["diff", "base.pt", "copy.pt"],
    ["fix", "model.pt", "-o", "quiet.pt"],
    ["convert", "base.pt", "quiet.safetensors"],
    ["merge", "checkpoint/", "-o", "merged.pt"],
    ["graft", "damaged.pt", "--from", "copy.pt", "-o", "grafted.pt"],
    ["salvage", "base.pt", "-o", "salvaged.pt"],
    ["report", "base.pt", "--headers-only", "-o", "quiet.html"],
]


@pytest.mark.parametrize("typed", QUIET, ids=" ".join)
def test_quiet_where_all_is_well(typed, shelf):
    """With -q nothing is printed; what is wrong is, as ever."""
    done = run_here(*typed, "-q", cwd=shelf)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["check", "model.pt"], b"error N401"),
        (["check", "model.pt", "--format", "json"], b'"N401"'),
        (["diff", "model.pt", "base.pt"], b"renamed"),
        (["salvage", "broken.pt", "-o", "rest.pt"], b"lost"),
        (["fix", "model.pt", "--drop", "nothing.*"], b"refused"),
        (["fix", "base.pt", "--format", "json"], b"{"),
        (["show", "base.pt"], b"conv1"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_quiet_where_something_is_wrong(typed, said, shelf):
    """Findings, refusals and what was asked for are printed with -q as well, and nothing else."""
    done = run_here(*typed, "-q", cwd=shelf)
    assert said in done.stdout


def test_quiet_ends_with_its_command(shelf):
    """A command after it in the same process prints again."""
    run_here("check", "base.pt", "-q", cwd=shelf)
    assert b"No findings" in run_here("check", "base.pt", cwd=shelf).stdout


def test_an_error_is_printed_quietly_as_well(shelf):
    """-q silences no error."""
    done = run_here("check", "-q", "absent.pt", cwd=shelf)
    assert done.returncode == 2 and b"absent.pt" in done.stderr
