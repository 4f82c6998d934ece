"""Strategies of several processes: the same steps as one device, in real processes."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.launch.launcher import launch
from tests.trainer.forks import Forked, fork_ranks
from tests.trainer.strategies.steps import WIDTH, after, furthest
from tests.trainer.strategies.targets import STEPS


def launched(target, world_size, folder):
    """Run a target of this package on so many ranks; what they wrote, by name."""
    strategy = "exact" if target == "exact" else "ddp"
    config = RunConfig(
        strategy=strategy, world_size=world_size, batch_size=16, width=WIDTH, out=str(folder), timeout=60
    )
    process = Forked(_launch, config, f"tests.trainer.strategies.targets:{target}")
    _, complaint = process.communicate(timeout=120)
    assert process.returncode == 0, complaint
    return {path.stem: torch.load(path, weights_only=True) for path in folder.glob("*.pt")}


def _launch(config, target):
    fork_ranks()
    return launch(config, target=target)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What every strategy came to on two ranks."""
    return launched("many", 2, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_a_step_on_two_ranks_is_a_step_on_one(two, name):
    """Within 1e-6 in float32 and 1e-14 in float64."""
    assert furthest(two[name]["weights"], after(STEPS, strategy="single")) < 1e-6
    double = after(STEPS, strategy="single", dtype="float64")
    assert furthest(two[f"{name}-float64"]["weights"], double) < 1e-14


def test_two_processes_of_ddp_are_two_replicas_of_manual(two):
    """Hand-written data parallelism and DistributedDataParallel give the same bits, each replica with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        manual = after(STEPS, strategy="manual", world_size=2)
    finally:
        torch.set_num_threads(threads)
    assert furthest(two["ddp"]["weights"], manual) == 0


def test_the_keys_of_ddp_begin_with_module_and_those_of_fsdp_do_not(two):
    """What each leaves behind when the wrapped model's state dict is saved."""
    bare = list(two["ddp"]["weights"])
    assert two["ddp"]["wrapped"] == [f"module.{key}" for key in bare]
    assert two["fsdp"]["wrapped"] == bare


def test_ddp_with_batch_norm_is_dp_with_batch_norm(two):
    """Each rank normalises its own share, as each replica does, and the first one's running stats are saved."""
    expected = after(STEPS, strategy="dp", world_size=2, network="resnet")
    assert furthest(two["ddp-resnet"]["weights"], expected) < 1e-5


def test_fsdp_saves_whole_tensors(two):
    """Weights, averages and moments have the shapes of the model, not those of shards."""
    saved = two["fsdp-everything"]
    shapes = [value.shape for value in after(0, strategy="single").values()]
    assert [value.shape for value in saved["weights"].values()] == shapes
    assert [value.shape for key, value in saved["ema"].items() if key != "n_averaged"] == shapes
    assert [slots["exp_avg"].shape for slots in saved["optimizer"]["state"].values()] == shapes


def test_fsdp_shards_what_is_smaller_than_the_world(two):
    """Three rows on two ranks: one has two of them, the other one, and the whole is right."""
    assert furthest(two["fsdp-foonet"]["weights"], after(STEPS, strategy="single", network="foonet")) < 1e-6


def test_exact_gives_the_same_bits_on_one_rank_and_on_two(tmp_path):
    """Weights, momentum and average are equal, bit for bit, dropout included."""
    saved = []
    for world_size in (1, 2):
        folder = tmp_path / str(world_size)
        folder.mkdir()
        saved.append(launched("exact", world_size, folder)["exact"])
    one, two = saved
    assert furthest(one["weights"], two["weights"]) == 0
    assert furthest(one["ema"], two["ema"]) == 0
    for index, slots in one["optimizer"]["state"].items():
        assert torch.equal(slots["momentum_buffer"], two["optimizer"]["state"][index]["momentum_buffer"])
