"""The law of explanations: who does as they say, to the letter, ends with a model that is loaded, or is told that
nothing helps."""

from __future__ import annotations

import json
import shlex

import pytest
import torch

from tests.commands import run_here
from tests.explaining.misfits import MISFITS

pytestmark = pytest.mark.filterwarnings("ignore")  # old weight norm is deprecated

_NO_COMMAND = "no command"


@pytest.fixture
def fail(tmp_path):
    """Save weights, and what torch says when the model loads them."""

    def make(name):
        torch.manual_seed(0)
        misfit = MISFITS[name]
        model, weights = misfit.model(), misfit.weights()
        torch.save(weights, tmp_path / "sick.pt")
        for file, text in misfit.beside.items():
            (tmp_path / file).write_text(text)
        with pytest.raises(RuntimeError) as raised:
            model.load_state_dict(weights)
        (tmp_path / "error.txt").write_text(f'torch.load("sick.pt")\nRuntimeError: {raised.value}\n')
        return misfit

    return make


def explained(folder, *arguments):
    result = run_here("explain", *arguments, "--format", "json", cwd=folder)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["explanations"]


def first_of_each_cause():
    """Every misfit; where another one before it has the same cause, it is asked where it may take long."""
    causes = set()
    for name, misfit in MISFITS.items():
        yield pytest.param(name, marks=[pytest.mark.slow] if misfit.code in causes else [])
        causes.add(misfit.code)


@pytest.mark.parametrize("name", list(first_of_each_cause()))
def test_the_cause_is_told_and_what_helps(name, fail, tmp_path):
    """The text of torch is enough; each command finishes, and each repair, and each line of Python that loads, leaves a
    model that has its weights.
    """
    misfit = fail(name)
    hits = explained(tmp_path, "--error", "error.txt")
    assert (hits[0]["code"] or "") == misfit.code
    for hit in hits:
        assert hit["ways"], "every explanation ends with something to type"
        helped = [follow(way["command"], misfit, tmp_path) for way in hit["ways"]]
        assert any(helped) or _NO_COMMAND in hit["meaning"].lower() or misfit.code == "N424", hit


def follow(command, misfit, folder):
    """Whether what the command left, or the line of Python did, is a model with all of its weights."""
    if command.startswith(("ckptdoctor check", "ckptdoctor show")):
        assert run_here(*shlex.split(command)[1:], cwd=folder).returncode in (0, 1)
        return False
    if command.startswith("ckptdoctor fix"):
        if "MODULE:CLASS" in command:
            return False
        return _repaired(command, misfit, folder)
    if not command.startswith("model.load_state_dict("):
        return False  # what is done where the file was saved, or to the code of the model
    for make in filter(None, (misfit.early, misfit.model)):
        model = make()
        line = command.replace("model.module.", "model.module." if hasattr(model, "module") else "model.")
        exec(line, {"model": model, "weights": torch.load(folder / "sick.pt")})
        return True
    return False


def _repaired(command, misfit, folder):
    for old in folder.glob("*.fixed*"):
        old.unlink()
    result = run_here(*shlex.split(command)[1:], cwd=folder)
    assert result.returncode == 0, (command, result.stdout, result.stderr)
    misfit.model().load_state_dict(torch.load(folder / "sick.fixed.pt"), strict=True)
    return True


@pytest.mark.parametrize("name", ["in DataParallel", "new weight norm into old", "replaced", "gamma and beta"])
def test_check_agrees(name, fail, tmp_path):
    """``check --error`` finds the same cause in the file, and names a repair of it."""
    misfit = fail(name)
    report = json.loads(run_here("check", "sick.pt", "--error", "error.txt", "--format", "json", cwd=tmp_path).stdout)
    found = {finding["code"]: finding for finding in report["files"][0]["findings"]}
    assert misfit.code in found
    assert found[misfit.code]["fix"]


def test_a_text_may_be_typed_where_its_file_may(fail, tmp_path):
    """``explain TEXT``, ``explain --error TEXT``, ``check FILE --error TEXT``: nobody has to save it first."""
    fail("renamed")
    text = (tmp_path / "error.txt").read_text()
    assert explained(tmp_path, text)[0]["code"] == "N423"
    assert explained(tmp_path, "--error", text)[0]["code"] == "N423"
    assert explained(tmp_path, 'Unexpected key(s) in state_dict: "fc.weight". ')[0]["code"] == "R002"
    report = json.loads(run_here("check", "sick.pt", "--error", text, "--format", "json", cwd=tmp_path).stdout)
    assert [finding["code"] for finding in report["files"][0]["findings"]] == ["N423"]
    assert run_here("fix", "sick.pt", "--auto", "--error", text, cwd=tmp_path).returncode == 0
    MISFITS["renamed"].model().load_state_dict(torch.load(tmp_path / "sick.fixed.pt"))


def test_a_text_without_a_file_has_a_name_in_the_commands(fail, tmp_path):
    """What has to be saved first is said once, and under which name."""
    fail("renamed")
    text = (tmp_path / "error.txt").read_text()
    told = run_here("explain", cwd=tmp_path, stdin=text.encode()).stdout.decode()
    assert "ckptdoctor fix sick.pt --auto --error error.txt" in told
    assert told.count("save it under this name first") == 1
    assert "save it under this name" not in run_here("explain", "--error", "error.txt", cwd=tmp_path).stdout.decode()
