"""W303 optimizer-file-as-model, W310 empty-state-dict and W311 uncovered-model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import ckptdoctor
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Odict, T
from tests.commands import run_here
from tests.rules import nouns

NET = {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4)), "fc.bias": T((2,))}
OPTIMIZER = {"state": {0: {"exp_avg": T((2, 4))}}, "param_groups": [{"params": [0]}]}


def test_an_optimizers_file_is_quoted() -> None:
    """What the finding quotes is what torch says to an optimizer's file."""
    model = torch.nn.Linear(2, 3)
    saved = torch.optim.SGD(model.parameters(), lr=0.1).state_dict()
    [found] = nouns.findings("W303", {"state": {}, "param_groups": []})
    assert found.torch_says[0].rstrip(".") in nouns.torch_error(model, saved)
    assert found.severity is Severity.INFO


def test_an_optimizers_file_for_a_model_is_an_error() -> None:
    """With a reference the wrong file is an error, and W311 does not say it again."""
    [found] = nouns.findings("W303", OPTIMIZER, NET)
    assert found.severity is Severity.ERROR
    assert nouns.findings("W311", OPTIMIZER, NET) == []


def test_states_of_generators_are_no_model() -> None:
    """A file of nothing but generator states is recognised, whatever its keys are called."""
    [found] = nouns.findings("W303", {"cpu": T((5056,), "uint8"), "cuda": [T((16,), "uint8")]})
    assert "random number generators" in found.message


@pytest.mark.parametrize("contents", [{"model": NET, "optimizer": OPTIMIZER}, NET, {"epoch": 1}, [1, 2]])
def test_other_files_are_no_optimizers(contents: object) -> None:
    """A file with weights, and one without any sign, are left alone."""
    assert nouns.findings("W303", contents) == []


@pytest.mark.parametrize("key", ["state_dict", "model", "net", "generator"])
def test_an_empty_place_for_weights_is_an_error(key: str) -> None:
    """An empty dict where weights should be is named by its place."""
    [found] = nouns.findings("W310", {"epoch": 1, key: Odict({})})
    assert found.message == f"{key} is an empty dict"
    assert found.severity is Severity.ERROR


def test_tensors_without_elements_are_no_weights() -> None:
    """What ZeRO-3 leaves behind has every key and no value."""
    [found] = nouns.findings("W310", {"model": {f"layer{n}.weight": T((0,)) for n in range(291)}})
    assert found.message == "all 291 tensors of model have no elements"


@pytest.mark.parametrize(
    "contents", [{"epoch": 1}, {"model": NET, "params": {}}, {"args": {}}, [], {"a.weight": T((0,)), "b": T((1,))}]
)
def test_what_is_not_empty_is_left_alone(contents: object) -> None:
    """Settings, empty settings and single empty tensors are no empty state dict."""
    assert nouns.findings("W310", contents) == []


@pytest.mark.parametrize(
    ("contents", "kind"),
    [
        ({"state": {}, "param_groups": []}, "the state of an optimizer"),
        ({"last_epoch": 1, "base_lrs": [0.1]}, "the state of a learning rate scheduler"),
        (T((5056,), "uint8"), "the state of random number generators"),
        ({"last_epoch": 1}, None),
        ({"state": NET}, None),
        (NET, None),
        (None, None),
    ],
)
def test_a_purpose_needs_its_signs(contents: object, kind: str | None) -> None:
    """An optimizer's, a scheduler's and a generator's file are told apart from everything else."""
    wanted = [] if kind is None else [f"the file holds {kind}, not a model"]
    assert [found.message for found in nouns.findings("W303", contents)] == wanted


@pytest.mark.parametrize(
    ("contents", "messages"),
    [
        ({}, ["the file holds an empty dict"]),
        ({"model": {}, "x": {}}, ["model is an empty dict"]),
        ({"model": NET, "params": {}}, []),
        ([], []),
    ],
)
def test_empty_places_count_only_without_weights(contents: object, messages: list[str]) -> None:
    """An empty dict beside weights may be anything, and so may an empty list."""
    assert [found.message for found in nouns.findings("W310", contents)] == messages


def test_an_empty_file_is_explained_once() -> None:
    """Held against a model, an empty state dict is W310's and not W311's."""
    assert nouns.findings("W311", {}, NET) == []


def test_another_model_is_said_in_figures() -> None:
    """The message says how much fits and how many keys there are."""
    other = {f"encoder.{number}.weight": T((8, 8)) for number in range(1200)}
    [found] = nouns.findings("W311", {"model": {**other, "fc.bias": T((2,))}}, NET)
    assert found.message == "1 of 3 keys of like.pt (1.7 % of its parameters) fits; model has 1,201 keys"
    assert found.fix is None


def test_a_small_model_that_fits_wholly_is_not_another_model() -> None:
    """A backbone whose every key fits is a part of the target: what misses is R001's."""
    target = {**NET, **{f"head{number}.weight": T((50, 50)) for number in range(9)}}
    assert nouns.findings("W311", NET, target) == []


def _rejections(model: torch.nn.Module, folder: Path) -> list[str]:
    """What torch says of the file with strict=False, as one line each; [] where it loads."""
    try:
        model.load_state_dict(torch.load(folder / "model.pt", weights_only=False), strict=False)
    except (RuntimeError, TypeError, AttributeError) as error:
        return [line.strip() for line in f"{type(error).__name__}: {error}".splitlines()]
    return []


def _net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 5))


@pytest.mark.parametrize(
    ("contents", "code"),
    [
        ({"0.weight": torch.ones(9, 9), "1.weight": torch.ones(9, 4)}, "W311"),
        ({"0.weight": torch.ones(9, 9), "x.weight": torch.ones(9, 4), "y": torch.ones(3)}, "W311"),
        ({"other.weight": torch.ones(9, 9)}, "W311"),
        ({"epoch": 3}, "W311"),
        (torch.ones(3), "W311"),
        ([torch.ones(3)], "W311"),
        ("text", "W311"),
        (None, "W311"),
        ([torch.ones(3), torch.ones(4)], "W305"),
        (dict(enumerate(_net().state_dict().values())), "W309"),
        ({0: torch.ones(3), "x.weight": torch.ones(3), "y.weight": torch.ones(4)}, "W309"),
    ],
)
def test_what_is_said_of_strict_false_is_what_torch_does(contents: object, code: str, tmp_path: Path) -> None:
    """A load that torch refuses is not called silent, and torch's own words are among those that are quoted."""
    torch.save(contents, tmp_path / "model.pt")
    report = ckptdoctor.check(str(tmp_path / "model.pt"), model=_net())
    [found] = [each for each in report.findings if each.code == code]
    refused = _rejections(_net(), tmp_path)
    for each in report.findings:
        assert ("silently" in each.cause) <= (not refused), each.cause
    if code == "W311":
        assert ("silently" in found.cause) is (not refused)
        assert ("strict=False too" in found.cause) is bool(refused)
    if refused:
        assert any(words in line for line in refused for words in found.torch_says), (refused, found.torch_says)


@pytest.mark.parametrize("nested", [False, True])
def test_arrays_are_compared_as_what_their_repair_makes_of_them(nested: bool, tmp_path: Path) -> None:
    """The fit counts the repair as a step, and the command that it prints makes a file that loads."""
    weights = {key: value.numpy() for key, value in _net().state_dict().items()}
    torch.save({"state_dict": weights} if nested else weights, tmp_path / "model.pt")
    torch.save(_net().state_dict(), tmp_path / "like.pt")
    report = ckptdoctor.check(str(tmp_path / "model.pt"), like=str(tmp_path / "like.pt"))
    assert report.coverage is not None
    assert [step.code for step in report.coverage.steps] == ["P202", *["W301"] * nested]
    assert (report.coverage.keys, report.coverage.steps[-1].keys) == (0, 4)
    assert "W311" not in [each.code for each in report.findings]
    shown = run_here("check", "model.pt", "--like", "like.pt", cwd=tmp_path).stdout.decode()
    assert "no repair makes the rest fit" not in shown
    assert "ckptdoctor fix model.pt --auto --like like.pt" in shown
    done = run_here("fix", "model.pt", "--auto", "--like", "like.pt", "-o", "out.pt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    _net().load_state_dict(torch.load(tmp_path / "out.pt"))


def test_arrays_of_another_model_are_not_called_its_weights(tmp_path: Path) -> None:
    """Arrays that fit nothing once they are tensors are still those of another model."""
    torch.save({"encoder.weight": torch.ones(9, 9).numpy()}, tmp_path / "model.pt")
    report = ckptdoctor.check(str(tmp_path / "model.pt"), model=_net())
    assert "W311" in [each.code for each in report.findings]


def test_numbers_in_the_place_of_names_are_named_by_their_order() -> None:
    """Without a reference they may be any data; with one, the shapes show whether their order is the model's."""
    numbers = dict(enumerate(NET.values()))
    [found] = nouns.findings("W309", numbers)
    assert found.severity is Severity.INFO
    [found] = nouns.findings("W309", numbers, NET)
    assert found.severity is Severity.ERROR
    assert "dict(zip(model.state_dict(), torch.load(path).values()))" in found.advice
    [found] = nouns.findings("W309", {"state_dict": numbers}, NET)
    assert 'dict(zip(model.state_dict(), torch.load(path)["state_dict"].values()))' in found.advice
    [found] = nouns.findings("W309", {0: T((9, 9)), 1: T((2,))}, NET)
    assert "zip" not in found.advice
    assert nouns.findings("W309", {0: T((9, 9)), 1: 3}) == []
    assert nouns.findings("W309", {12: T((8,)), 57: T((8,))}) == []
