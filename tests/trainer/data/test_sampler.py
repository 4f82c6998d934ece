"""The order of images in an epoch, and how ranks share it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.data.sampler import Sampler, share


def test_an_epoch_is_a_permutation_of_its_own():
    """Every image once; another order in another epoch and under another seed; the same one when asked again."""
    sampler = Sampler(100, 8, seed=5)
    order = sampler.permutation(3)
    assert sorted(order.tolist()) == list(range(100))
    assert torch.equal(order, Sampler(100, 32, seed=5).permutation(3))
    others = [sampler.permutation(4), Sampler(100, 8, seed=6).permutation(3), Sampler(100, 8, seed=4).permutation(4)]
    assert not any(torch.equal(order, other) for other in others)


def test_batches_are_whole_slices_of_the_order():
    """12 batches of 8 out of 100 images; the 4 that are left are dropped."""
    sampler = Sampler(100, 8, seed=0)
    batches = list(sampler.batches(1))
    assert sampler.steps == len(batches) == 12
    assert torch.equal(torch.cat(batches), sampler.permutation(1)[:96])


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 5), st.data())
def test_an_epoch_goes_on_at_any_step(size, batch_size, epoch, data):
    """Batches from a step on are the end of all batches."""
    sampler = Sampler(size, batch_size, seed=1)
    if size < batch_size:
        return
    start = data.draw(st.integers(0, sampler.steps))
    rest = [batch.tolist() for batch in sampler.batches(epoch, start)]
    assert rest == [batch.tolist() for batch in sampler.batches(epoch)][start:]


@pytest.mark.parametrize(("size", "batch_size"), [(63, 64), (0, 1), (10, 0), (10, -1)])
def test_no_whole_batch_is_an_error_that_says_what_to_choose(size, batch_size):
    """A batch larger than the data, or of nothing, is refused."""
    with pytest.raises(UsageError, match=r"--batch-size"):
        list(Sampler(size, batch_size, 0).batches(1))
    with pytest.raises(UsageError):
        _ = Sampler(size, batch_size, 0).steps


@given(st.integers(0, 200), st.integers(1, 17))
def test_shares_are_contiguous_fair_and_complete(size, world_size):
    """The parts of all ranks follow each other without gap or overlap, and differ by one at most."""
    parts = [range(size)[share(size, rank, world_size)] for rank in range(world_size)]
    assert [index for part in parts for index in part] == list(range(size))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [96, 101])
def test_ranks_together_see_what_a_distributed_sampler_gives_them(world_size, size):
    """Fed with the same order, torch's sampler and ours put the same images into every global batch."""
    sampler = Sampler(size, 16, seed=2)
    order = sampler.permutation(1)
    theirs = []
    for rank in range(world_size):
        torchs = DistributedSampler(order, num_replicas=world_size, rank=rank, shuffle=False, drop_last=True)
        dealt = order[list(torchs)].split(16 // world_size)
        theirs.append([set(chunk.tolist()) for chunk in dealt[: sampler.steps]])
    for step, batch in enumerate(sampler.batches(1)):
        chunks = [set(batch[share(16, rank, world_size)].tolist()) for rank in range(world_size)]
        assert sum(map(len, chunks)) == len(set.union(*chunks)) == 16  # no image is dealt twice
        assert set.union(*chunks) == set.union(*(rank[step] for rank in theirs))


def test_a_distributed_sampler_without_set_epoch_repeats_itself():
    """The mistake that ours cannot make: torch's order is the same in every epoch until it is told which one it is."""
    torchs = DistributedSampler(range(50), num_replicas=2, rank=0)
    first = list(torchs)
    assert first == list(torchs)
    torchs.set_epoch(1)
    assert first != list(torchs)
    ours = Sampler(50, 10, 0)
    assert [batch.tolist() for batch in ours.batches(0)] != [batch.tolist() for batch in ours.batches(1)]
