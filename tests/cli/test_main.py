import json
import platform
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
from click.testing import CliRunner

from ckptdoctor.cli.main import COMMANDS, LazyGroup, cli
from ckptdoctor.crash import no_torch
from ckptdoctor.diagnose.catalogue import all_rules
from tests.commands import run, run_here


def invoke(*arguments):
    """The command line within this process."""
    return CliRunner().invoke(cli, arguments)


def test_version(shelf):
    """--version tells the installed version."""
    assert run("--version", cwd=shelf).stdout.startswith(b"ckptdoctor, version ")


def test_version_of_torch(shelf):
    """Next to it are the versions of Python and of torch as it was installed; a build may call itself more exactly."""
    said = run("--version", cwd=shelf).stdout.decode()
    assert said.endswith(f"Python {platform.python_version()}, torch {version('torch')}\n")
    assert torch.__version__.startswith(version("torch"))


def test_help_lists_the_commands():
    """The commands are listed in groups, each with its first sentence in full."""
    lines = invoke("--help").output.split("\n")
    headings = [
        line for line in lines if line.endswith(":") and line[0] != " " and line not in ("Options:", "Examples:")
    ]
    assert headings == ["Find out:", "Repair:", "Change:", "Keep:", "Practise:", "Set up:"]
    listed = [line for line in lines[lines.index("Find out:") : lines.index("Options:")] if line.startswith("  ")]
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert not any(line.endswith("...") for line in listed)


@pytest.mark.parametrize("name", ["N401", "n401", "module-prefix"])
def test_explain(name):
    """explain prints the page of a rule, found by code or name."""
    result = invoke("explain", name)
    assert result.output.startswith("N401 module-prefix · error\n")
    for section in ("Meaning", "Why it matters", "Symptoms", "Detection", "Repair"):
        assert f"\n{section}\n" in result.output


def test_a_page_that_python_left_out_says_so():
    """With -OO there are no docstrings, which the pages are."""
    line = [sys.executable, "-OO", "-m", "ckptdoctor", "explain", "N401"]
    said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert said.startswith("N401 module-prefix · error\n\nPython was started with -OO")


def test_explain_what_is_not_there(shelf):
    """An unknown code is status 2, and a near name is offered."""
    result = run("explain", "module-prefxi", cwd=shelf)
    assert result.returncode == 2
    assert b'Did you mean "module-prefix"' in result.stderr


def test_rules_lists_every_rule():
    """rules has a line for every rule, and the same as JSON with its documentation."""
    assert [line.split()[0] for line in invoke("rules").output.strip().split("\n")] == [
        rule.code for rule in all_rules()
    ]
    document = json.loads(invoke("rules", "--format", "json").output)
    assert [rule["code"] for rule in document["rules"]] == [rule.code for rule in all_rules()]
    assert all(rule["documentation"] for rule in document["rules"])


def test_a_bare_path_is_checked(shelf):
    """A path alone is checked where there is no terminal to browse in."""
    result = run("sick.pt", cwd=shelf)
    assert result.returncode == 1
    assert result.stdout.split(b"\nRead ")[0] == run("check", "sick.pt", cwd=shelf).stdout.split(b"\nRead ")[0]


def test_the_name_alone_opens_the_picker_on_a_terminal(monkeypatch):
    """That is browse without a path; where there is no terminal it is the help."""
    assert invoke().output.startswith("Usage: ")
    monkeypatch.setattr(LazyGroup, "for_paths", lambda self: "browse")
    assert "browse needs a terminal" in str(invoke().exception)


def test_a_mistyped_path_is_no_unknown_command(shelf):
    """A word that looks like a path or an address is missed as one."""
    result = run("sikc.pt", cwd=shelf)
    assert result.returncode == 2
    assert result.stderr == run("check", "sikc.pt", cwd=shelf).stderr
    assert b"No such file" in result.stderr and b"ommand" not in result.stderr
    assert b"http" in run("http://127.0.0.1:9/m.pt", cwd=shelf).stderr


def test_an_unknown_command_is_refused(shelf):
    """A word that is neither command nor path is a usage error."""
    result = run("chekc", "sick.pt", cwd=shelf)
    assert result.returncode == 2
    assert result.stderr.startswith(b"error: No such command 'chekc'. Did you mean 'check'?\n")


def test_what_needs_torch_says_so_where_there_is_none(shelf):
    """One sentence says what to install, and is no bug report; the status is 2."""
    code = "import sys; sys.modules['torch'] = None; from ckptdoctor.cli.main import main; main(['train', 'foonet'])"
    result = subprocess.run([sys.executable, "-c", code], cwd=shelf, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == f"error: {no_torch()}\n"


@pytest.mark.parametrize(
    "line",
    [
        "fix pointer.pt",
        "convert pointer.pt out.safetensors",
        "merge plain.pt plain.pt -o plain.pt",
        "salvage pointer.pt",
        "graft pointer.pt --from plain.pt",
        "rebuild pointer.pt --parity plain.pt.parity",
    ],
)
def test_what_was_refused_is_json_as_well(line, tmp_path):
    """Whoever reads the output of --format json finds the reason there, and status 1."""
    torch.save({"weight": torch.ones(2)}, tmp_path / "plain.pt")
    (tmp_path / "pointer.pt").write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{64 * 'a'}\nsize 9\n")
    (tmp_path / "plain.pt.parity").write_bytes(b'{"format":"ckptdoctor parity"')
    done = run_here(*line.split(), "--format", "json", cwd=tmp_path)
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["status"] == "refused" and f"error: {said['message']}".startswith(done.stderr.decode().split("\n")[0])
