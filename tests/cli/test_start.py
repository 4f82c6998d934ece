"""A check of paths alone, which needs no parser, is the check that the parser would have made of it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from ckptdoctor.cli import check, check_paths, main, start
from tests.commands import run_anew

# modules that a check of a file of torch does without, each of which would take a twentieth of its time
SLOW = {
    "click",
    "uuid",
    "platform",
    "gettext",
    "dataclasses",
    "inspect",
    "tempfile",
    "json",
    "ckptdoctor.formats.packed",
}


@pytest.fixture
def asked(monkeypatch):
    """What ``check_paths`` is asked, instead of a check."""
    calls = []
    genuine = check_paths.check_paths

    def noted(paths, **options):
        calls.append((paths, genuine.__kwdefaults__ | options))
        return 0

    monkeypatch.setattr(check, "check_paths", noted)
    monkeypatch.setattr(check_paths, "check_paths", noted)
    return calls


@pytest.mark.parametrize("paths", [["a.pt"], ["a.pt", "b c.pt", "d"], [""], ["*.pt", "check"]])
def test_the_parser_would_ask_the_same(asked, paths):
    """Every default of an option is that of the function behind it."""
    start.run(["check", *paths])
    main.run(["check", *paths])
    assert len(asked) == 2
    assert asked[0] == asked[1]


@pytest.mark.parametrize(
    "words", [[], ["check"], ["a.pt"], ["check", "-"], ["check", "a.pt", "--deep"], ["check", "--", "a.pt"], ["--help"]]
)
def test_everything_else_is_parsed(monkeypatch, words):
    """Options, other commands, bare paths, standard input, and a check of nothing."""
    monkeypatch.setattr(main, "run", lambda given: ("parsed", given))
    assert start.run(words) == ("parsed", words)


def test_the_parser_is_not_imported(tmp_path):
    """Neither click nor what only it needs is in memory after a check of a path, nor what opens packed files."""
    torch.save({"weight": torch.ones(2)}, tmp_path / "m.pt")
    code = (
        "import sys; from ckptdoctor.cli.start import run; status = run(['check', 'm.pt'])\n"
        f"print(int(status), *{SLOW!r} & set(sys.modules), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stderr.split() == ["0"]


def test_failures_are_told_as_ever(tmp_path):
    """A path that is not there, and settings that cannot be read: a line on stderr, and status 2."""
    for words in (["check", "absent.pt"], ["check", "absent.pt", "--color=never"]):
        result = run_anew(*words, cwd=tmp_path)
        assert result.returncode == 2
        assert b"absent.pt" in result.stderr
    (tmp_path / "ckptdoctor.toml").write_text("nonsense = 1")
    plain, parsed = run_anew("check", "m.pt", cwd=tmp_path), run_anew("check", "m.pt", "--color=auto", cwd=tmp_path)
    assert plain.returncode == parsed.returncode == 2
    assert plain.stderr == parsed.stderr
    assert b"nonsense" in plain.stderr


def test_nobody_reads_the_output(tmp_path):
    """A pipe that is closed ends the process with status 1 and without a word."""
    torch.save({"module.weight": torch.ones(2)}, tmp_path / "m.pt")
    line = f"{sys.executable} -m ckptdoctor check m.pt"
    for each in (line, f"{line} --color=auto"):
        shell = ["bash", "-c", f"exec 3> >(exit); sleep 0.3; {each} >&3; echo $?"]
        result = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert (result.stdout, result.stderr) == ("1\n", "")
