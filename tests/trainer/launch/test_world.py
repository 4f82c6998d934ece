"""Joining a world: alone, under torchrun, under Slurm, on two nodes."""

from __future__ import annotations

import os
import socket

import pytest
import torch
from torch import distributed

from ckptdoctor.errors import TrainingError, UsageError
from ckptdoctor.trainer.launch.variables import RankPlace
from ckptdoctor.trainer.launch.world import join
from ckptdoctor.trainer.team import Team
from tests.trainer.launch.helpers import GOES_ON, a_config, fork_script, script

CORES = len(os.sched_getaffinity(0))


@pytest.fixture
def port():
    """A port that is free now."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return str(server.getsockname()[1])


def slurm(rank, port):
    """What srun sets for one of two tasks on one node."""
    return {
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NTASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }


@pytest.fixture
def free_threads(monkeypatch):
    """Nobody has settled how many threads a process uses."""
    monkeypatch.delenv("OMP_NUM_THREADS")


def test_the_number_of_threads_can_be_settled(tmp_path, monkeypatch):
    """OMP_NUM_THREADS decides for every process, as it does for torch."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with join(None, a_config(tmp_path, strategy="dp")):
        assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("free_threads")
def test_a_world_of_one(tmp_path):
    """A process that was started by hand has all cores, and no group."""
    before = torch.get_num_threads()
    with join(None, a_config(tmp_path, strategy="dp")) as team:
        assert team == Team(torch.device("cpu"))
        assert torch.get_num_threads() == CORES
        assert not distributed.is_initialized()
    assert torch.get_num_threads() == before


def test_exact_uses_one_thread(tmp_path):
    """The strategy that promises the same bits computes every sum in one thread."""
    with join(None, a_config(tmp_path, strategy="exact")):
        assert torch.get_num_threads() == 1


def test_a_group_of_one(tmp_path):
    """Under the launcher a single process forms its groups, too, and takes them down."""
    own = RankPlace(0, 0, 1, 1, (tmp_path / "rendezvous").as_uri())
    with join(own, a_config(tmp_path, world_size=1)) as team:
        assert distributed.get_backend() == "gloo"
        assert distributed.get_backend(team.control) == "gloo"
        assert team.control is not distributed.group.WORLD
        assert team.any(True) and not team.any(False)
    assert not distributed.is_initialized()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"strategy": "dp"},
            "--strategy dp is one process, but 2 were started: start one, or use ddp.",
        ),
        (
            {"world_size": 4},
            "the run is for 4 processes, but 2 were started: use --world-size 2, or start 4.",
        ),
    ],
)
def test_a_place_that_does_not_fit(tmp_path, changes, sentence):
    """A run that was started with another number of processes than it is for is refused."""
    with pytest.raises(UsageError) as caught, join(RankPlace(0, 0, 2, 2, "env://"), a_config(tmp_path, **changes)):
        pass
    assert caught.value.message == sentence


def test_too_few_devices(tmp_path, monkeypatch):
    """A rank without a device of its own says so, unless Slurm shows each task only its own."""
    monkeypatch.setattr("ckptdoctor.trainer.devices.count", lambda kind: 1)
    with (
        pytest.raises(TrainingError) as caught,
        join(RankPlace(3, 3, 4, 4, "env://"), a_config(tmp_path, world_size=4)),
    ):
        pass
    assert caught.value.message == (
        "local rank 3 needs its own device, but this machine has 1 of type cpu: start fewer processes on it, "
        "or train on the CPU with --device cpu."
    )


def test_a_port_in_use(tmp_path):
    """A port that somebody else listens on is named as what it is."""
    with socket.socket() as server:
        server.bind(("", 0))
        server.listen()
        place = RankPlace(0, 0, 2, 2, f"tcp://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(TrainingError) as caught, join(place, a_config(tmp_path)):
            pass
    assert caught.value.message == "MASTER_PORT is already in use on this machine: choose another one."


@pytest.mark.slow
def test_torchrun_with_a_killed_rank(tmp_path):
    """Under torchrun the survivor itself names the rank that is gone."""
    process = script(
        "first_killed", a_config(tmp_path), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert f"\nrank 0 has exited or hangs: rank 1 lost its connection in epoch 2, step 7{GOES_ON}\n" in err


@pytest.mark.slow
@pytest.mark.usefixtures("free_threads")
def test_two_nodes(tmp_path, port):
    """Two torchruns that meet make one world; each rank is the only one of its node."""
    run = ("-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1")
    nodes = [script("total", a_config(tmp_path), *run, f"--master-port={port}", f"--node-rank={n}") for n in (0, 1)]
    for node in nodes:
        _, err = node.communicate(timeout=60)
        assert node.returncode == 0, err
    for rank in (0, 1):
        assert (tmp_path / f"total-{rank}").read_text() == f"3 3 [0, 1] 0 {CORES} cpu"


@pytest.mark.usefixtures("free_threads")
def test_slurm(tmp_path, port):
    """Processes with the variables of srun meet at MASTER_ADDR."""
    tasks = [fork_script("total", a_config(tmp_path), **slurm(rank, port)) for rank in (0, 1)]
    for task in tasks:
        _, err = task.communicate(timeout=60)
        assert (task.returncode, err) == (0, "")
    for rank in (0, 1):
        assert (tmp_path / f"total-{rank}").read_text() == f"3 3 [0, 1] {rank} {max(1, CORES // 2)} cpu"


@pytest.mark.parametrize(
    ("target", "gone", "what"),
    [("first_killed", 0, "lost its connection"), ("suspended", 1, "waited 1.5 s")],
)
def test_slurm_with_a_lost_rank(tmp_path, port, target, gone, what):
    """Under Slurm the survivor names the one that is gone or hangs, rank 0, which keeps the store, included."""
    tasks = [fork_script(target, a_config(tmp_path, timeout=1.5), **slurm(rank, port)) for rank in (0, 1)]
    try:
        _, err = tasks[1 - gone].communicate(timeout=20)
    finally:
        tasks[gone].kill()
        tasks[gone].communicate()
    assert tasks[1 - gone].returncode == 3
    sentence = f"rank {gone} has exited or hangs: rank {1 - gone} {what} in epoch 2, step 7{GOES_ON}"
    assert err.splitlines()[-1] == sentence
