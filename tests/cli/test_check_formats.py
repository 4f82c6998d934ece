"""``ckptdoctor check`` for machines that read reports: code scanning, workflows, and comments."""

import json

import pytest
from jsonschema import Draft202012Validator

from tests.cli.files import printable, spelt
from tests.commands import run_here
from tests.rendering.sarif_schema import SCHEMA


def results(done):
    """The results of a valid SARIF log."""
    document = json.loads(done.stdout)
    assert not list(Draft202012Validator(SCHEMA).iter_errors(document))
    return document["runs"][0]["results"]


@pytest.mark.parametrize("style", ["sarif", "github", "markdown"])
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["healthy.pt"], 0),
        (["healthy.pt", "sick.pt", "hostile.pt"], 1),
        (["sick.pt", "--fail-on", "never"], 0),
        (["page.pt", "empty.pt"], 1),
        (["sick.pt", "missing.pt"], 2),
        (["sick.pt", "--statistics", "--deep"], 1),
    ],
    ids=spelt,
)
def test_the_status_is_that_of_any_format(shelf, style, arguments, status):
    """What is printed does not depend on the status, and is data alone."""
    done = run_here("check", *arguments, "--format", style, cwd=shelf)
    assert done.returncode == status and printable(done.stdout) and done.stdout
    assert bool(done.stderr) == (status == 2)
    if style == "sarif":
        results(done)


def test_folders_are_one_log(shelf, tmp_path):
    """Every file of a folder is an artifact, with keys and bytes of each finding, the same in every run."""
    (tmp_path / "runs").mkdir()
    for name in ("sick.pt", "training.pt"):
        (tmp_path / "runs" / name).write_bytes((shelf / name).read_bytes())
    done = run_here("check", "runs", "--format", "sarif", cwd=tmp_path)
    found = results(done)
    places = {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in found}
    assert places == {"runs/sick.pt", "runs/training.pt"}
    (prefix,) = [each for each in found if each["ruleId"] == "N401" and "sick" in str(each["locations"][0])]
    assert [each["logicalLocations"][0]["name"] for each in prefix["locations"]] == [
        "module.fc.weight",
        "module.fc.bias",
    ]
    data = (tmp_path / "runs" / "sick.pt").read_bytes()
    for each, size in zip(prefix["locations"], (24, 8), strict=True):
        region = each["physicalLocation"]["region"]
        assert region["byteLength"] == size and region["byteOffset"] + size <= len(data)
    again = results(run_here("check", "runs/training.pt", "runs/sick.pt", "--format", "sarif", cwd=tmp_path))
    assert {str(each["partialFingerprints"]) for each in again} == {str(each["partialFingerprints"]) for each in found}


def test_standard_input_has_no_place(shelf):
    """Nothing of the temporary copy is told."""
    done = run_here("check", "-", "--format", "sarif", cwd=shelf, stdin=(shelf / "sick.pt").read_bytes())
    assert {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in results(done)} == {"-"}
    assert b"/tmp" not in done.stdout


def test_a_workflow(shelf):
    """One command for each finding, and what was not examined once at the end."""
    text = run_here("check", "sick.pt", "training.pt", "--format", "github", cwd=shelf).stdout.decode()
    commands = [line for line in text.split("\n") if line.startswith("::")]
    assert commands[0].startswith("::error file=sick.pt,title=N401 module-prefix::both keys begin with")
    assert text.count("Not examined") == 1


def test_a_comment(shelf):
    """One table for all files."""
    text = run_here("check", "sick.pt", "healthy.pt", "--format", "markdown", cwd=shelf).stdout.decode()
    assert text.startswith("**1 error in 2 files**\n\n| severity | file |")
    assert "| error | `sick.pt` | `N401` module-prefix | both keys begin with" in text
    assert "`ckptdoctor fix sick.pt --strip-module` (safe)" in text and "Nothing found in `healthy.pt`." in text


def test_a_project_may_ask_for_it(shelf, tmp_path):
    """The format can be set in the configuration."""
    (tmp_path / "ckptdoctor.toml").write_text('format = "sarif"\n')
    assert results(run_here("check", shelf / "sick.pt", cwd=tmp_path))
