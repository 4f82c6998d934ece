"""Random numbers that go on where they stopped."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch

from ckptdoctor.trainer.snapshot import seeding
from ckptdoctor.trainer.team import Team

CPU = (torch.device("cpu"),)


@dataclass(frozen=True)
class Pair(Team):
    """A team of two whose other rank answers with the same tensor shifted by one."""

    def gather(self, values):
        return [values, values + 1]


def drawn():
    """Numbers of every generator there is on a CPU; the odd number of Gaussians leaves one in Python's generator."""
    return [torch.rand(3).tolist(), torch.randn(20).tolist(), random.random(), random.gauss(0, 1), random.randrange(9)]


def team(rank=0, world_size=1):
    """A rank without a process group."""
    return Team(torch.device("cpu"), rank=rank, world_size=world_size)


def test_seeds():
    """The same seed gives the same numbers; rank 0 begins with what torch.manual_seed gives."""
    seeding.seed_everything(5)
    first = drawn()
    seeding.seed_everything(5)
    assert drawn() == first
    torch.manual_seed(5)
    assert torch.rand(3).tolist() == first[0]


def test_ranks_and_epochs_differ():
    """Every (seed, rank, epoch) has a seed of its own that torch takes."""
    seeds = {seeding.derived(seed, rank, epoch) for seed in range(5) for rank in range(5) for epoch in range(5)}
    assert len(seeds) == 125
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_go_on():
    """After restoring, each generator draws the very numbers that it would have drawn."""
    seeding.seed_everything(1)
    drawn()
    states = seeding.gather(seeding.capture(CPU), team())
    expected = [drawn(), drawn()]
    seeding.seed_everything(99)
    seeding.restore(states, team(), CPU, 1, 3)
    assert [drawn(), drawn()] == expected


def test_capture_draws_nothing():
    """Capturing the state leaves it as it is."""
    seeding.seed_everything(1)
    seeding.capture(CPU)
    there = drawn()
    seeding.seed_everything(1)
    assert drawn() == there


@pytest.mark.parametrize("gauss", [False, True])
def test_gather_keeps_each_state(gauss):
    """What is sent as one tensor of bytes comes back as it was, with a storage of its own."""
    random.seed(3)
    if gauss:
        random.gauss(0, 1)
    state = {
        **seeding.capture(CPU),
        "cuda": [torch.arange(16, dtype=torch.uint8)],
        "mps": torch.ones(44, dtype=torch.uint8),
    }
    (back,) = seeding.gather(state, team())
    assert back["python"] == state["python"] == random.getstate()
    assert torch.equal(back["cpu"], state["cpu"])
    assert torch.equal(back["cuda"][0], state["cuda"][0])
    assert torch.equal(back["mps"], state["mps"])
    assert back["cpu"].untyped_storage().nbytes() == 5056


def test_gather_in_the_order_of_ranks():
    """Each rank's state stands at its own place."""
    own = seeding.capture(CPU)
    first, second = seeding.gather(own, Pair(torch.device("cpu"), world_size=2))
    assert torch.equal(first["cpu"], own["cpu"])
    assert torch.equal(second["cpu"], own["cpu"] + 1)


def test_a_rank_that_was_not_there():
    """A new rank gets numbers of its own that follow from seed, rank and epoch."""
    states = seeding.gather(seeding.capture(CPU), team())
    new = []
    for rank, epoch in ((1, 3), (2, 3), (1, 4), (1, 3)):
        seeding.restore(states, team(rank, 3), CPU, 7, epoch)
        new.append(drawn())
    assert new[0] == new[3]
    assert len({str(numbers) for numbers in new}) == 3
