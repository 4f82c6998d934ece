"""Random numbers for a purpose."""

from __future__ import annotations

import torch

from ckptdoctor.trainer.data.seeding import generator


def draw(*purpose):
    return torch.randint(0, 2**62, (4,), generator=generator(*purpose)).tolist()


def test_the_same_purpose_gives_the_same_numbers():
    """Twice the same generator, twice the same numbers, and always these."""
    assert draw("a", 1, 2) == draw("a", 1, 2)


def test_other_purposes_give_other_numbers():
    """Seed and epoch do not add up: all pairs are different."""
    drawn = {tuple(draw("permutation", seed, epoch)) for seed in range(8) for epoch in range(8)}
    assert len(drawn) == 64


def test_negative_and_huge_seeds_are_fine():
    """Any integer is a seed."""
    assert draw("a", -1) != draw("a", 1)
    assert len(draw("a", 2**200)) == 4


def test_the_global_generator_is_left_alone():
    """Drawing for a purpose takes nothing from the numbers that dropout uses."""
    before = torch.get_rng_state()
    draw("a")
    assert torch.equal(torch.get_rng_state(), before)
