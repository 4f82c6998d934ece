"""The place of a process, as torchrun, Slurm and the built-in launcher tell it."""

from __future__ import annotations

import pytest

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.launch.variables import RankPlace, place

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node-a",
    "MASTER_PORT": "29500",
}

SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_NTASKS": "11",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
    "MASTER_ADDR": "node-a",
    "MASTER_PORT": "29500",
}

OWN = {
    "CKPTDOCTOR_RENDEZVOUS": "file:///tmp/x/rendezvous",
    "CKPTDOCTOR_RANK": "1",
    "CKPTDOCTOR_WORLD_SIZE": "2",
}


def test_nothing_set():
    """A process that was started by hand has no place among others."""
    assert place({"PATH": "/bin"}) is None


def test_torchrun():
    """torchrun sets everything, the meeting place included."""
    assert place(TORCHRUN) == RankPlace(5, 1, 8, 4, "env://")


def test_own_launcher():
    """The built-in launcher has one machine, so ranks and local ranks are the same."""
    own = place(OWN)
    assert own == RankPlace(1, 1, 2, 2, "file:///tmp/x/rendezvous")
    assert own.alone_on_machine


def test_own_launcher_inside_others():
    """The built-in launcher may itself have been started by Slurm: what it says counts."""
    assert place({**SLURM, **OWN}) == place(OWN)


def test_slurm():
    """srun tells ranks and counts, and the batch script where to meet."""
    assert place(SLURM) == RankPlace(9, 1, 11, 3, "tcp://node-a:29500")


@pytest.mark.parametrize(("node", "tasks"), [("0", 4), ("1", 4), ("2", 3)])
def test_slurm_counts_tasks_per_node(node, tasks):
    """The compact list of srun says how many tasks each node has."""
    assert place({**SLURM, "SLURM_NODEID": node}).local_world_size == tasks


def test_slurm_without_the_list():
    """Without the compact list, what was asked for per node counts, or one node with all tasks."""
    few = {key: value for key, value in SLURM.items() if key != "SLURM_STEP_TASKS_PER_NODE"}
    assert place({**few, "SLURM_NTASKS_PER_NODE": "4"}).local_world_size == 4
    assert place(few).local_world_size == 11


def test_slurm_address_of_ipv6():
    """An address with colons goes into brackets."""
    assert place({**SLURM, "MASTER_ADDR": "fe80::1"}).rendezvous == "tcp://[fe80::1]:29500"


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_STEP_ID": None},  # a batch script: it has SLURM_PROCID=0, too
        {"SLURM_PROCID": None},
        {"SLURM_NTASKS": "1"},
        {"SLURM_STEP_NUM_TASKS": "1"},  # an interactive shell of a job of many tasks
    ],
)
def test_slurm_that_does_not_count(changes):
    """Outside a step, and alone in one, the built-in launcher is to be used."""
    assert place(changed(SLURM, changes)) is None


@pytest.mark.parametrize(
    ("given", "changes", "sentence"),
    [
        (
            TORCHRUN,
            {"WORLD_SIZE": None},
            "WORLD_SIZE is not set, but its companions are: start with torchrun or srun, or unset them all.",
        ),
        (
            TORCHRUN,
            {"RANK": None},
            "RANK is not set, but its companions are: start with torchrun or srun, or unset them all.",
        ),
        (
            TORCHRUN,
            {"RANK": "8"},
            "RANK is 8, but WORLD_SIZE is 8: ranks count from 0 to WORLD_SIZE - 1.",
        ),
        (
            TORCHRUN,
            {"RANK": "-1"},
            "RANK is '-1', which is not a number: start with torchrun or srun, or unset it.",
        ),
        (
            TORCHRUN,
            {"LOCAL_RANK": "4"},
            "LOCAL_RANK is 4, but LOCAL_WORLD_SIZE is 4: ranks count from 0 to LOCAL_WORLD_SIZE - 1.",
        ),
        (
            TORCHRUN,
            {"LOCAL_WORLD_SIZE": "9"},
            "LOCAL_WORLD_SIZE is 9, more than the WORLD_SIZE of 8; start with torchrun.",
        ),
        (
            TORCHRUN,
            {"MASTER_PORT": "http"},
            "MASTER_PORT is 'http', which is not a number: start with torchrun or srun, or unset it.",
        ),
        (
            SLURM,
            {"MASTER_ADDR": None},
            "MASTER_ADDR is not set, so the processes cannot find each other: set it to the name of the first node, "
            "and MASTER_PORT to a free port (--slurm prints a script that does).",
        ),
        (
            SLURM,
            {"SLURM_PROCID": "11"},
            "SLURM_PROCID is 11, but SLURM_NTASKS is 11: ranks count from 0 to SLURM_NTASKS - 1.",
        ),
        (
            SLURM,
            {"SLURM_LOCALID": "3"},
            "SLURM_LOCALID is 3, but only 3 tasks are on this node: start with srun.",
        ),
        (
            SLURM,
            {"SLURM_NODEID": "3"},
            "SLURM_NODEID is 3, but SLURM_STEP_TASKS_PER_NODE is '4(x2),3': start with srun.",
        ),
        (
            OWN,
            {"CKPTDOCTOR_RANK": "2"},
            "CKPTDOCTOR_RANK is 2, but CKPTDOCTOR_WORLD_SIZE is 2: ranks count from 0 to CKPTDOCTOR_WORLD_SIZE - 1.",
        ),
    ],
)
def test_contradictions(given, changes, sentence):
    """Variables that contradict each other are refused with a sentence that names one of them."""
    with pytest.raises(UsageError) as caught:
        place(changed(given, changes))
    assert caught.value.message == sentence


def changed(given, changes):
    """With the changes; None takes a variable away."""
    return {key: value for key, value in {**given, **changes}.items() if value is not None}
