"""Strategies that run their replicas in one process: the same step as a single device, and what they leave behind."""

from __future__ import annotations

import pytest
import torch

from tests.trainer.strategies.steps import after, batch, furthest, strategy

IN_PROCESS = ["dp", "functional", "manual"]


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_step_of_many_replicas_is_a_step_of_one_in_float32(name, replicas):
    """One step on N replicas gives the weights of a single device within 1e-6."""
    assert furthest(after(strategy=name, world_size=replicas), after(strategy="single")) < 1e-6


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_step_of_many_replicas_is_a_step_of_one_in_float64(name, replicas):
    """One step on N replicas gives the weights of a single device within 1e-14."""
    one, other = after(strategy=name, world_size=replicas, dtype="float64"), after(strategy="single", dtype="float64")
    assert furthest(one, other) < 1e-14


def test_exact_computes_what_single_computes():
    """Micro-shards summed pairwise give the same step, within 1e-14 in float64."""
    assert furthest(after(strategy="exact", dtype="float64"), after(strategy="single", dtype="float64")) < 1e-14


def test_a_step_changes_every_parameter():
    """No parameter stays where it was: the comparisons above compare something."""
    for name in ["single", *IN_PROCESS, "exact"]:
        before, now = strategy(strategy=name).state_dict(), after(strategy=name)
        assert all(not torch.equal(before[key], now[key]) for key in before), name


@pytest.mark.parametrize("network", ["foonet", "lenet", "vgg", "resnet"])
def test_the_keys_of_dp_begin_with_module(network):
    """What DataParallel saves is the bare state dict under module., the same tensors in the same order."""
    trained = strategy(strategy="dp", world_size=2, network=network)
    bare, wrapped = trained.state_dict(), trained.wrapped_state_dict()
    assert [f"module.{key}" for key in bare] == list(wrapped)
    assert all(torch.equal(bare[key], wrapped[f"module.{key}"]) for key in bare)


def test_each_replica_of_foonet_sees_half_of_the_batch():
    """FooNet on two replicas: 8 and 8 of a batch of 16."""
    trained = strategy(strategy="dp", world_size=2, network="foonet")
    assert trained.step(*batch(trained.config)).replica_batches == (8, 8)


@pytest.mark.parametrize("name", ["single", *IN_PROCESS, "exact"])
def test_what_was_saved_can_be_gone_on_from(name):
    """A new strategy with the weights and the optimizer of another takes the same next step, bit for bit."""
    first = strategy(strategy=name)
    first.step(*batch(first.config, 0))
    second = strategy(strategy=name, seed=1)
    second.load(first.state_dict(), first.optimizer_state_dict(), first.ema_state_dict())
    for each in (first, second):
        each.begin(0, 1)
        each.step(*batch(each.config, 1))
    assert furthest(first.state_dict(), second.state_dict()) == 0


def test_manual_leaves_what_sgd_would_leave():
    """Any strategy can go on from manual: its optimizer state is that of torch.optim.SGD."""
    ours, theirs = strategy(strategy="manual"), strategy(strategy="single")
    for each in (ours, theirs):
        each.step(*batch(each.config))
    one, other = ours.optimizer_state_dict(), theirs.optimizer_state_dict()
    assert one["param_groups"] == other["param_groups"]
    assert one["state"].keys() == other["state"].keys()
    for index, slots in one["state"].items():
        assert torch.allclose(slots["momentum_buffer"], other["state"][index]["momentum_buffer"], atol=1e-6)


def test_saved_states_are_copies():
    """A state dict that was taken does not change with the next step."""
    for name in ["single", "manual", "exact"]:
        trained = strategy(strategy=name)
        taken = trained.state_dict()
        kept = {key: value.clone() for key, value in taken.items()}
        trained.step(*batch(trained.config))
        assert furthest(taken, kept) == 0, name


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["single", "dp", "functional"])
def test_mixed_precision_takes_nearly_the_same_step(name, precision):
    """Under autocast the weights stay float32 and the step is that of full precision within a hundredth."""
    mixed = after(strategy=name, amp=precision)
    assert {value.dtype for value in mixed.values()} == {torch.float32}
    assert 0 < furthest(mixed, after(strategy="single")) < 1e-2


def test_the_average_follows_the_weights():
    """With ema an AveragedModel is kept: its first value is that of the weights, then it lags behind."""
    trained = strategy(strategy="single", ema=True)
    trained.step(*batch(trained.config, 0))
    first = trained.state_dict()
    trained.step(*batch(trained.config, 1))
    average, now = trained.ema_state_dict(), trained.state_dict()
    assert average["n_averaged"] == 2
    key = "classifier.2.weight"
    expected = 0.99 * first[key] + 0.01 * now[key]
    assert torch.allclose(average[f"module.{key}"], expected, atol=1e-7)


@pytest.mark.parametrize("name", ["dp", "manual"])
def test_work_is_shown_once_and_adds_up(name):
    """The gradients shown of the replicas add up to the one after them; the weights are those of a step unwatched."""
    watched = strategy(strategy=name, world_size=2, network="lenet", show_work=True)
    lines = watched.step(*batch(watched.config)).work
    assert watched.step(*batch(watched.config)).work == ()
    values = [[float(word) for word in line.split(":")[1].split()[:4]] for line in lines if "norm" in line]
    assert [one + other for one, other in zip(*values[:2], strict=True)] == pytest.approx(values[2], rel=0.02, abs=1e-3)
    assert values[2:] == values[2:3] * (2 if name == "manual" else 1)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", ["dp", "manual"])
def test_a_step_that_is_watched_is_the_same_step(name):
    """Looking at gradients changes no weight."""
    one, other = (after(strategy=name, world_size=2, show_work=shown) for shown in (True, False))
    assert furthest(one, other) == 0
