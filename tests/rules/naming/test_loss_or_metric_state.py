"""N422 loss-or-metric-state."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.edits import Safety
from ckptdoctor.rules.examples import T
from tests.rules import nouns

NET = {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4)), "fc.bias": T((2,))}


class Training(torch.nn.Module):
    """What a LightningModule holds: the net, and a loss with weights beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Linear(3, 2)
        self.criterion = torch.nn.CrossEntropyLoss(weight=torch.ones(2))


def test_a_loss_beside_a_complete_model_goes() -> None:
    """After the prefix is stripped everything fits, and only the loss is left over."""
    saved, target = Training().state_dict(), torch.nn.Linear(3, 2)
    contents = {"pytorch-lightning_version": "2.6.0", "state_dict": nouns.described(saved)}
    [found] = nouns.findings("N422", contents, nouns.described(target.state_dict()))
    stripped = {key.removeprefix("model."): value for key, value in saved.items()}
    assert found.torch_says[0] in nouns.torch_error(target, stripped)
    assert found.message == (
        '1 of 3 keys of state_dict is under "criterion.", next to a model that is complete for like.pt'
    )
    assert found.fix is not None
    assert (found.fix.safety, found.fix.option) == (Safety.CONFIRMED, "--drop 'criterion.*'")
    assert nouns.findings("R002", contents, nouns.described(target.state_dict())) == []


def test_each_block_is_a_finding_of_its_own() -> None:
    """A loss and metrics are two causes, each with its own command."""
    contents = {**NET, "loss.a.weight": T((1,)), "loss.b.weight": T((1,)), "val_metrics.n": T((), "int64")}
    found = nouns.findings("N422", contents, NET)
    assert [each.fix.option for each in found if each.fix is not None] == ["--drop 'loss.*'", "--drop 'val_metrics.*'"]


def test_a_teacher_may_be_the_model_that_is_wanted() -> None:
    """A block with the target's own layers is dropped only when somebody says so."""
    contents = {**NET, **{f"teacher.{key}": value for key, value in NET.items()}}
    [found] = nouns.findings("N422", contents, NET)
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE
    assert "decide which of the two to keep" in found.cause


def test_nothing_is_said_where_the_model_is_not_complete() -> None:
    """A missing layer may be the one that is called differently here: R001 and R002 speak of both."""
    contents = {**NET, "loss.weight": T((9, 9))}
    for like in ({**NET, "x.weight": T((1, 2))}, {**NET, "fc.weight": T((3, 4)), "fc.bias": T((3,))}):
        assert nouns.findings("N422", contents, like) == []
        assert len(nouns.findings("R002", contents, like)) == 1


def test_a_target_that_has_the_name_keeps_it() -> None:
    """Where the target has a ``loss.`` too, what is left over there is no block beside the model."""
    contents = {**NET, "loss.weight": T((1,)), "loss.extra": T((1,))}
    assert nouns.findings("N422", contents, {**NET, "loss.weight": T((1,))}) == []


@pytest.mark.parametrize(
    "name", ["criterion", "loss", "losses", "loss_fn", "mse_loss", "train_metrics", "metric", "Teacher", "lpips"]
)
def test_names_of_losses_metrics_and_teachers(name: str) -> None:
    """Whole words, however they are put together."""
    [found] = nouns.findings("N422", {**NET, f"{name}.weight": T((1,))}, NET)
    assert f'is under "{name}."' in found.message


@pytest.mark.parametrize("name", ["head", "glossary", "lossless", "metrical", "discriminator", "ema", "", "x" * 99])
def test_names_that_only_sound_like_it(name: str) -> None:
    """Anything else may be what somebody needs."""
    assert nouns.findings("N422", {**NET, f"{name}.weight": T((1,))}, NET) == []
