"""The sbatch script of a run: what Slurm is asked for, and how it starts the ranks.

Slurm starts one task per rank, where torchrun would start one process per GPU, and tells each its place:
``SLURM_PROCID`` (the rank), ``SLURM_NTASKS`` (the world size), ``SLURM_LOCALID`` (the rank within the node). What it
does not tell is where the ranks meet: the script says so with ``MASTER_ADDR``, the first node, and ``MASTER_PORT``.

Strategies that keep their replicas in one process get one task with all the GPUs of one node:
``srun --gres=gpu:8 -n1 --ntasks-per-node=1``.

Facts are those of the manual pages sbatch(1) and srun(1), https://slurm.schedmd.com/sbatch.html.
"""

from __future__ import annotations

import shlex

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.config import PROCESSES, RunConfig

GPUS_PER_NODE = 8
TIME = "01:00:00"
NOTICE = 120
"""Seconds before the time is up at which the run is told to save; Slurm may say so up to a minute earlier still."""

# 20000 to 29999: above the ports of services, below those that Linux gives to outgoing connections (from 32768).
_PORTS = (20000, 10000)


def nodes_for(world_size: int, gpus_per_node: int = GPUS_PER_NODE) -> int:
    """Return the number of nodes that hold that many replicas, one per GPU."""
    return -(-world_size // gpus_per_node)


def script(config: RunConfig, *, nodes: int, gpus_per_node: int, command: list[str]) -> str:
    """Return the text of an sbatch script that runs ``command``: the whole command line, program first.

    ``nodes`` is how many to ask for, ``gpus_per_node`` how many GPUs (or, on the CPU, ranks) one of them has room for;
    no more GPUs are asked for than there are replicas. A ``--slurm`` in the command is left out. The script may be
    submitted again after its time was up: it goes on from the last complete checkpoint.
    """
    _refuse(config, nodes, gpus_per_node, command)
    tasks = config.world_size if config.strategy in PROCESSES else 1
    resources = _resources(config, nodes, tasks)
    words = [word for word in command if word not in ("--slurm", "--resume")]
    parts = [
        "#!/bin/bash",
        *_header(config, nodes, resources),
        "",
        "set -euo pipefail",
        *(_meeting_place() if config.strategy in PROCESSES else ()),
        "",
        *_resuming(config, always="--resume" in command),
        "",
        "# one dead rank ends them all: the others would only wait for it",
        # a job step does not inherit how many cores its tasks get (since Slurm 22.05), so all of it is said again
        f"srun --nodes={nodes} {' '.join(resources)} --kill-on-bad-exit=1 \\",
        f'    {shlex.join(words)} ${{resume:+"$resume"}}',
    ]
    return "\n".join(parts) + "\n"


def _header(config: RunConfig, nodes: int, resources: list[str]) -> list[str]:
    """Return the lines that sbatch reads. The same options on its command line win over these."""
    options = [
        f"--job-name={shlex.quote(f'ckptdoctor-{config.network}-{config.strategy}')}",
        f"--nodes={nodes}",
        *resources,
        f"--time={TIME}",
        "--output=%x-%j.out",
        # a job that comes back after the failure of a node goes on in the same file
        "--open-mode=append",
        "--requeue",
        # to the ranks, not to this script: the same signal as on scancel and preemption, on which they save and end
        f"--signal=TERM@{NOTICE}",
    ]
    return [f"#SBATCH {option}" for option in options]


def _resources(config: RunConfig, nodes: int, tasks: int) -> list[str]:
    """Return the tasks, and what each node gives them."""
    replicas_per_node = -(-config.world_size // nodes)
    cores = (1 if config.strategy in PROCESSES else config.world_size) + config.workers
    return [
        f"--ntasks={tasks}",
        f"--ntasks-per-node={-(-tasks // nodes)}",
        f"--cpus-per-task={cores}",
        *([] if config.device == "cpu" else [f"--gres=gpu:{replicas_per_node}"]),
    ]


def _meeting_place() -> list[str]:
    first, width = _PORTS
    return [
        "",
        "# where the ranks meet: on the first node, at a port of this job's own",
        'hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        "export MASTER_ADDR=${hosts%%$'\\n'*}",
        f"export MASTER_PORT=$(({first} + SLURM_JOB_ID % {width}))",
    ]


def _resuming(config: RunConfig, always: bool) -> list[str]:
    """Set ``resume`` where there is a checkpoint to go on from; one that is being written ends in ".partial"."""
    if always:
        return ["resume=--resume"]
    return [
        "# submitted again, or started again by Slurm: go on from the last complete checkpoint, if there is one",
        "resume=",
        f"for saved in {shlex.quote(config.out)}/epoch-*[0-9]/training.pt; do",
        '    if [ -e "$saved" ]; then resume=--resume; fi',
        "done",
    ]


def _refuse(config: RunConfig, nodes: int, gpus_per_node: int, command: list[str]) -> None:
    if config.device in ("mps", "xla"):
        raise UsageError(f"--slurm requests GPUs or CPU cores, not --device {config.device}; use cuda or cpu")
    if any(word.partition("=")[0] == "--gpus" for word in command):
        raise UsageError("--gpus and --slurm exclude each other: Slurm picks the GPUs of a job; leave --gpus out")
    if nodes < 1 or gpus_per_node < 1:
        raise UsageError("--slurm: a job needs at least one node with room for at least one replica")
    if nodes > config.world_size:
        raise UsageError(
            f"--slurm: {nodes} nodes for {config.world_size} replicas leave nodes idle; request fewer nodes"
        )
    if config.strategy not in PROCESSES and (nodes > 1 or config.world_size > gpus_per_node):
        raise UsageError(
            f"--strategy {config.strategy} is one process and stays on one node, which holds {gpus_per_node} replicas,"
            f" not {config.world_size}; use --strategy ddp across nodes"
        )
    if config.world_size > nodes * gpus_per_node:
        raise UsageError(
            f"--slurm: {nodes} × {gpus_per_node} GPUs cannot hold {config.world_size} replicas; request "
            f"{nodes_for(config.world_size, gpus_per_node)} nodes"
        )
