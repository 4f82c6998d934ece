"""W301 nested-state-dict."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import checkpoint as dcp

from ckptdoctor.converting.conversion import convert
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.edits import Safety, TakeRoot
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import T
from tests.rules import nouns
from tests.rules.examined import found

NET = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}


def test_a_training_checkpoint_is_no_fault() -> None:
    """Without a reference it is worth knowing, no more, and says how to load it."""
    [found] = nouns.findings("W301", {"epoch": 1, "state_dict": NET, "optimizer": {}})
    assert found.severity is Severity.INFO
    assert found.message == 'the weights are under "state_dict"'
    assert 'torch.load(path)["state_dict"]' in found.advice
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE
    assert (found.fix.option, found.fix.edits) == ("--root state_dict", (TakeRoot(("state_dict",)),))


def test_the_lines_are_those_of_torch() -> None:
    """What the finding quotes is what torch says to the whole checkpoint."""
    model = torch.nn.Linear(2, 3)
    saved = {"epoch": 1, "state_dict": model.state_dict()}
    [found] = nouns.findings("W301", {**saved, "state_dict": nouns.described(model.state_dict())})
    error = nouns.torch_error(model, saved)
    assert all(line in error for line in found.torch_says)


def test_a_reference_makes_it_a_warning() -> None:
    """Where the target wants bare weights, the file does not load as it is."""
    [found] = nouns.findings("W301", {"epoch": 1, "model": NET}, NET)
    assert found.severity is Severity.WARNING
    assert found.fix is not None


def test_weights_that_do_not_fit_are_another_rules_matter() -> None:
    """Taking the inner dict is not proposed where nothing in it fits."""
    assert nouns.findings("W301", {"epoch": 1, "model": NET}, {"other.weight": T((7, 7))}) == []


def test_several_sets_are_named_and_none_is_chosen() -> None:
    """Two sets that fit a target alike: both are named, and there is no repair."""
    [found] = nouns.findings("W301", {"generator": NET, "discriminator": NET}, NET)
    assert found.message == '2 sets of weights are under "generator" and "discriminator"'
    assert found.fix is None
    roots = [command.partition("--root ")[2].split()[0] for command in found.commands]
    assert roots == ["generator", "discriminator"]


@pytest.mark.parametrize("other", [NET, {"x.weight": T((9, 9))}], ids=["one network twice", "two networks"])
def test_without_a_reference_several_sets_are_another_rules_matter(other: dict[str, T]) -> None:
    """W302 and W304 say more of several sets of weights, and say it alone."""
    assert nouns.findings("W301", {"a": NET, "b": other}) == []


def test_a_reference_chooses_between_two() -> None:
    """Of two networks the one that fits is taken."""
    [found] = nouns.findings("W301", {"a": NET, "b": {"x.weight": T((9, 9))}}, {"x.weight": T((9, 9))})
    assert found.fix is not None
    assert found.fix.edits == (TakeRoot(("b",)),)


def test_bare_weights_are_where_they_should_be() -> None:
    """A state dict at the top is not nested, whatever else lies in it."""
    assert nouns.findings("W301", NET) == []


def test_an_odd_key_is_quoted_for_the_shell() -> None:
    """The command can be pasted as it is."""
    [found] = nouns.findings("W301", {"my model": NET, "epoch": 1})
    assert found.fix is not None
    assert found.fix.option == "--root 'my model'"


def test_weights_in_a_list_are_found() -> None:
    """Weights saved as the second item of a list are named by their place."""
    [found] = nouns.findings("W301", [3, NET])
    assert found.message == 'the weights are under "1"'
    assert "torch.load(path)[1]" in found.advice


def test_in_a_folder_the_command_that_makes_a_file_is_named(tmp_path) -> None:
    """A distributed checkpoint whose weights are nested: torch.load and fix cannot do it, and convert does."""
    state = {"epoch": torch.tensor(1), "state_dict": torch.nn.Linear(2, 3).state_dict()}
    with pytest.warns(UserWarning, match="single process"):
        dcp.save(state, checkpoint_id=tmp_path / "saved", no_dist=True)
    (finding,) = found(tmp_path / "saved", "W301")
    assert finding.fix is None
    output = tmp_path / "saved.safetensors"
    assert finding.commands == (f"ckptdoctor convert FILE {output} --root state_dict",)
    out = tmp_path / "out.safetensors"
    convert(ConvertRequest((str(tmp_path / "saved"),), str(out), root="state_dict"))
    assert load_file(out).keys() == state["state_dict"].keys()


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_is_quoted_as_torch_refuses_it(tmp_path, kind):
    """load_state_dict looks at no key of what is not a dict."""
    weights = {"fc.weight": torch.ones(2, 2), "fc.bias": torch.ones(2)}
    torch.save(kind([weights]), tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "W301")
    with pytest.raises(TypeError) as error:
        torch.nn.Linear(2, 2).load_state_dict(torch.load(tmp_path / "a.pt"))
    assert finding.torch_says == (str(error.value),)
