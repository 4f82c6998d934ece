"""``show --filter``: only the tensors that match."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from ckptdoctor.cli import main
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.filters.words import WORDS
from tests.cli.files import HOSTILE, printable, spelt
from tests.commands import run_here


def asked(folder, name, *options):
    """The exit status, what is printed, and what is said on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main.run(["show", str(folder / name), *options])
    return status, out.getvalue(), err.getvalue()


def shown(folder, name, *options):
    """What is printed."""
    status, out, err = asked(folder, name, *options)
    assert (status, err) == (ExitStatus.CLEAN, "")
    return out


def test_the_tree(shelf):
    """The heading says how many match, and nothing is left but the way to them."""
    heading, *lines = shown(shelf, "training.pt", "--filter", "bias").splitlines()
    assert " · 1 of 2 tensors matches · " in heading
    assert [line.split()[0] for line in lines] == ["(root)", "state_dict/module.fc", "bias"]


def test_several_match(shelf):
    """They are counted in the plural."""
    assert " · 2 of 2 tensors match · " in shown(shelf, "training.pt", "--filter", "device:cuda:1")


def test_keys(shelf):
    """One line for each tensor that matches; several filters all have to."""
    words = ("--filter", "fc", "--filter", "!bias")
    (line,) = shown(shelf, "training.pt", "--keys", *words).splitlines()
    assert line.startswith("state_dict/module.fc.weight ")


def test_devices(shelf):
    """Storages that none of them views are not counted."""
    assert "cuda:1   1 storage" in shown(shelf, "training.pt", "--devices", "--filter", "bias")


def test_json(shelf):
    """The document says what was asked, of how many, and has only what is left."""
    document = json.loads(shown(shelf, "training.pt", "--format", "json", "--filter", "bias"))
    assert document["filter"] == {"text": "bias", "of_tensors": 2}
    assert [each["key"] for each in document["tensors"]] == ["module.fc.bias"]
    assert document["contents"] == {"state_dict": {"module.fc.bias": {"$tensor": "state_dict/module.fc.bias"}}}
    assert document["state_dicts"] == [{"path": "state_dict", "role": "model", "tensors": 1}]
    assert "filter" not in json.loads(shown(shelf, "training.pt", "--format", "json"))


def test_values(shelf):
    """Only the values of what matches are read; patterns of --only have to match as well."""
    text = shown(shelf, "training.pt", "--stats", "--filter", "=2")
    assert " · 1 of 2 tensors matches · " in text and "Read 8 bytes." in text
    both = shown(shelf, "training.pt", "--stats", "--filter", "bias", "--only", "*fc*", "--format", "json")
    assert [each["key"] for each in json.loads(both)["tensors"]] == ["module.fc.bias"]
    assert json.loads(both)["filter"] == {"text": "bias", "of_tensors": 2}


@pytest.mark.parametrize("options", [[], ["--keys"], ["--devices"], ["--stats"]], ids=spelt)
def test_nothing_matches(shelf, options):
    """Nothing is printed, a sentence on stderr says so, and the status is that of grep."""
    status, out, err = asked(shelf, "training.pt", *options, "--filter", "dtype:f64")
    assert (status, out) == (ExitStatus.FINDINGS, "")
    command = f"ckptdoctor show {shlex.quote(str(shelf / 'training.pt'))} --keys"
    assert err == f"0 of 2 tensors match dtype:f64. List the keys: {command}\n"


@pytest.mark.parametrize("options", [[], ["--stats"]], ids=spelt)
def test_nothing_matches_in_json(shelf, options):
    """A program gets a document all the same."""
    status, out, err = asked(shelf, "training.pt", *options, "--format", "json", "--filter", "zzz")
    assert status == ExitStatus.FINDINGS and err
    assert json.loads(out)["tensors"] == []


@pytest.mark.parametrize("options", [[], ["--stats"]], ids=spelt)
def test_a_filter_that_makes_no_sense(shelf, options):
    """It is one sentence on stderr, and nothing is shown."""
    status, out, err = asked(shelf, "training.pt", *options, "--filter", "dtyp:f64")
    assert (status, out, err) == (ExitStatus.TROUBLE, "", 'error: Unknown filter "dtyp:". Did you mean "dtype:"?\n')


@pytest.mark.parametrize(
    ("typed", "better"), [("fc.*", "*fc.*"), ("modle.fc.*", "module.fc.*"), ("waight", "weight"), ("zzz*", "")]
)
def test_a_filter_that_matches_is_offered(shelf, typed, better):
    """Where nothing matches: with the star that was forgotten, or with its words as names have them."""
    said = asked(shelf, "training.pt", "--filter", typed)[2]
    offer = f' Did you mean "{better}"?' if better else ""
    assert said.startswith(f"0 of 2 tensors match {typed}.{offer} List the keys: ")
    assert not better or asked(shelf, "training.pt", "--keys", "--filter", better)[0] == ExitStatus.CLEAN


def test_findings(shelf):
    """Headers are examined as check does; with values, too."""
    assert len(shown(shelf, "sick.pt", "--keys", "--filter", "finding:N401").splitlines()) == 2
    assert " · 2 of 2 tensors match · " in shown(shelf, "sick.pt", "--stats", "--filter", "finding:error")
    assert asked(shelf, "healthy.pt", "--filter", "finding:*")[0] == ExitStatus.FINDINGS


def test_standard_input(shelf):
    """A file that comes through a pipe is filtered, and examined, like any other."""
    result = run_here(
        "show", "-", "--keys", "--filter", "finding:N401 bias", cwd=shelf, stdin=(shelf / "sick.pt").read_bytes()
    )
    assert result.stdout.startswith(b"module.fc.bias ") and result.stdout.count(b"\n") == 1


@pytest.mark.parametrize("text", ["evil", f'"{HOSTILE.strip(chr(0))}"'], ids=["found", "said"])
@pytest.mark.parametrize("options", [[], ["--keys"], ["--devices"], ["--format", "json"]], ids=spelt)
def test_hostile_text_never_reaches_the_terminal(shelf, options, text):
    """Neither what matches nor the filter itself."""
    _, out, err = asked(shelf, "hostile.pt", *options, "--filter", text)
    assert printable(out.encode()) and printable(err.encode())


def test_the_help_explains_the_language(shelf):
    """In the words of the browser's help."""
    text = " ".join(run_here("show", "--help", cwd=shelf).stdout.decode().split())
    assert all(" ".join(f"{word} {meaning}".split()) in text for word, meaning in WORDS)


@pytest.mark.parametrize(
    ("options", "loaded"),
    [([], set()), (["--filter", "bias"], {"filters"}), (["--filter", "finding:N401"], {"filters", "rules"})],
    ids=spelt,
)
def test_only_what_is_asked_for_is_imported(shelf, options, loaded):
    """Neither the filter nor any rule, unless a word asks for it."""
    line = ["show", str(shelf / "sick.pt"), *options]
    code = f"import sys; from ckptdoctor.cli.main import run; run({line!r}); print('\\n', *sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    parts = {name.split(".")[1] for name in output.splitlines()[-1].split() if name.startswith("ckptdoctor.")}
    assert parts & {"filters", "rules"} == loaded
