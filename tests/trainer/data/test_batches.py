"""The order of images, and batches of them."""

from __future__ import annotations

import gc
import os
import signal
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from ckptdoctor.errors import TrainingError, UsageError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.data import batches as module
from ckptdoctor.trainer.data.batches import Batches, Images, Sampler, rank_share
from ckptdoctor.trainer.data.dataset import Dataset, DataSplit, prepared
from ckptdoctor.trainer.data.shapes import shapes
from tests.trainer.forks import Forked


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
    parts = [range(size)[rank_share(size, rank, world_size)] for rank in range(world_size)]
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
        chunks = [set(batch[rank_share(16, rank, world_size)].tolist()) for rank in range(world_size)]
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


@pytest.fixture(scope="module")
def data():
    """100 shapes, and 50 to test with."""
    return shapes(100, 50)


def batches(data, batch_size=16, rank=0, world_size=1, **config):
    sampler = Sampler(len(data.train), batch_size, seed=1)
    return Batches(data.train, data, sampler, RunConfig(**config), rank, world_size)


def listed(pairs):
    return [(inputs.clone(), labels.clone()) for inputs, labels in pairs]


def same(left, right):
    return len(left) == len(right) and all(
        torch.equal(a, c) and torch.equal(b, d) and a.dtype == c.dtype
        for (a, b), (c, d) in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_batch_holds_the_images_the_sampler_chose(data, dtype):
    """Inputs are prepared in the dtype of the configuration; labels are those of the same images."""
    sampler = Sampler(100, 16, seed=1)
    whole = prepared(data.train.inputs, data, getattr(torch, dtype))
    expected = [(whole[chosen], data.train.labels[chosen]) for chosen in sampler.batches(2)]
    assert len(expected) == 6
    assert same(listed(batches(data, dtype=dtype).epoch(2)), expected)


def test_ranks_get_contiguous_chunks_of_every_batch(data):
    """What four ranks get is, one after the other, what one rank gets."""
    alone = listed(batches(data).epoch(1))
    ranks = [listed(batches(data, rank=rank, world_size=4).epoch(1)) for rank in range(4)]
    together = [tuple(map(torch.cat, zip(*step, strict=True))) for step in zip(*ranks, strict=True)]
    assert same(together, alone)
    assert all(len(labels) == 4 for rank in ranks for _, labels in rank)


def test_an_epoch_goes_on_in_the_middle_on_another_number_of_ranks(data):
    """Two steps on two ranks and the rest on four: every image of the epoch once, in the order of one rank."""
    labels = torch.cat([labels for _, labels in batches(data).epoch(3)])
    steps = []
    for world_size, part in ((2, slice(0, 2)), (4, slice(2, None))):
        start = part.start
        ranks = [listed(batches(data, rank=r, world_size=world_size).epoch(3, start)) for r in range(world_size)]
        for step in list(zip(*ranks, strict=True))[: 2 if start == 0 else None]:
            steps.extend(labels for _, labels in step)
    assert torch.equal(torch.cat(steps), labels)


def test_a_split_too_large_to_prepare_at_once_gives_the_same_bits(data, monkeypatch):
    """Prepared batch by batch or all at once: the same."""
    at_once = batches(data)
    monkeypatch.setattr(module, "PREPARED_AT_ONCE", 100)
    one_by_one = batches(data)
    assert at_once._images.ready is not None and one_by_one._images.ready is None
    assert same(listed(at_once.epoch(1)), listed(one_by_one.epoch(1)))


def test_a_batch_that_ranks_cannot_share_evenly_is_refused(data):
    """16 images on 3 ranks is an error that says what to choose."""
    with pytest.raises(UsageError, match="multiple of 3"):
        batches(data, world_size=3)


def test_pinned_memory_is_no_matter_where_there_is_no_cuda(data):
    """``pin_memory`` on a machine without CUDA changes nothing, and torch has nothing to warn of."""
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    assert same(listed(batches(data, pin_memory=True).epoch(1)), listed(batches(data).epoch(1)))


def test_with_cuda_pinned_batches_are_pinned(data):
    """Where there is CUDA, batches lie in page-locked memory if that was asked for."""
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA")
    assert all(inputs.is_pinned() and labels.is_pinned() for inputs, labels in batches(data, pin_memory=True).epoch(1))


def test_workers_prepare_the_same_bits_ahead_and_live_on(data):
    """Two workers give the batches of none, in epoch after epoch, from any step, even after an epoch that was left."""
    alone, helped = batches(data), batches(data, workers=2, dtype="float32", pin_memory=False)
    before = torch.get_rng_state()
    assert same(listed(helped.epoch(1)), listed(alone.epoch(1)))
    pids = workers(helped)
    next(helped.epoch(2))  # left after its first batch
    assert same(listed(helped.epoch(2, 3)), listed(alone.epoch(2, 3)))
    assert same(listed(helped.epoch(3)), listed(alone.epoch(3)))
    assert workers(helped) == pids and len(pids) == 2
    assert torch.equal(torch.get_rng_state(), before), "workers took from the numbers that dropout uses"


def test_workers_end_at_once_when_they_are_needed_no_more(data, monkeypatch):
    """Letting go of the batches ends their workers, without the seconds that torch is ready to wait for each."""
    helped = batches(data, workers=2)
    next(helped.epoch(1))
    processes = helped._loader._iterator._workers
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 3600.0)  # longer than any test may take
    del helped
    gc.collect()
    assert not any(process.is_alive() for process in processes)


def workers(helped):
    return [process.pid for process in helped._loader._iterator._workers]


def dying(when):
    """Kill the only worker, and print what becomes of the batches; in a process whose first DataLoader this is."""
    data = shapes(100, 50)
    epoch = Batches(data.train, data, Sampler(100, 4, seed=1), RunConfig(workers=1))
    running = epoch.epoch(1)
    next(running)
    (pid,) = workers(epoch)
    if when == "stopped":
        os.kill(pid, signal.SIGSTOP)  # so that the batches run out and the next one is waited for
        threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
    else:
        os.kill(pid, signal.SIGKILL)
    try:
        list(running)
    except TrainingError as error:
        print(error.message)


@pytest.mark.parametrize("when", ["stopped", pytest.param("working", marks=pytest.mark.slow)])
def test_a_worker_that_dies_ends_the_run_with_a_sentence(when):
    """A worker killed while a batch is waited for, or sent, is a TrainingError that names --workers, said once.

    In a process of its own: torch sets its handler of SIGCHLD once.
    """
    process = Forked(dying, when)
    said, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (0, "")
    assert "has died" in said and "--workers" in said


@pytest.mark.parametrize("kind", [RuntimeError, ConnectionResetError, EOFError])
def test_what_a_worker_raises_is_not_taken_for_its_death(kind):
    """An error that a worker itself had, also one of a connection, comes as it is."""
    split = DataSplit(torch.zeros(8, 1, 1, 1, dtype=torch.uint8), torch.zeros(8))
    helped = batches(Dataset("made", split, split, ("a",), (0.0,), (1.0,)), batch_size=4, workers=1)
    helped._images.__class__ = type("Failing", (Images,), {"choose": raising(kind)})
    with pytest.raises(kind, match=r"Caught .* in DataLoader worker process 0"):
        list(helped.epoch(1))
    # the traceback keeps the workers' queues in a cycle: some later test's garbage collection would wait five seconds
    helped._loader._iterator._shutdown_workers()


def raising(kind):
    def choose(self, indices):
        raise kind("of the data")

    return choose


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 40))
def test_every_test_image_is_seen_once_and_all_ranks_have_as_many_batches(size, world_size, batch_size):
    """Whatever the sizes, the ranks' parts of each batch make up the test set in its order."""
    images = torch.arange(size, dtype=torch.uint8).view(size, 1, 1, 1)
    split = DataSplit(images, torch.arange(size))
    data = Dataset("made", split, split, ("a",), (0.0,), (1 / 255,))
    ranks = [
        list(
            module.test_batches(
                split, data, rank=rank, world_size=world_size, batch_size=batch_size, dtype=torch.float64
            )
        )
        for rank in range(world_size)
    ]
    assert {len(rank) for rank in ranks} == {-(-size // batch_size)}
    seen = torch.cat([labels for step in zip(*ranks, strict=True) for _, labels in step])
    assert seen.tolist() == list(range(size))
    inputs = torch.cat([inputs for step in zip(*ranks, strict=True) for inputs, _ in step])
    assert torch.allclose(inputs.flatten(), seen.double())


def test_an_empty_part_of_a_test_batch_has_the_shape_of_images(data):
    """A rank with nothing to test gets no images, and can still call the network."""
    parts = list(module.test_batches(data.test, data, rank=0, world_size=4, batch_size=49, dtype=torch.float32))
    assert parts[-1][0].shape == (0, 1, 28, 28) and parts[-1][1].shape == (0,)
