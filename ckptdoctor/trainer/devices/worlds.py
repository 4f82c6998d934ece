"""The replicas of a run: their number, and the device of each."""

from __future__ import annotations

import torch

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.config import MICRO_SHARDS, PROCESSES
from ckptdoctor.trainer.devices.kinds import count, device

VIRTUAL = 2
"""Replicas on the CPU when nobody says how many: the fewest that show what a strategy does."""

_NAMES = {"cuda": "GPU", "mps": "MPS device", "xla": "XLA device"}

# torch.distributed.Backend.backend_capability: gloo is for CPU and CUDA tensors, NCCL for CUDA tensors
_ALONE = frozenset({"mps", "xla"})


def default_world_size(strategy: str, kind: str) -> int:
    """Return the number of replicas when nobody says: every accelerator there is; two virtual replicas on the CPU.

    On a machine with one GPU that is one replica: a second would need a GPU of its own. ``single`` is always one;
    ``exact`` takes as many as its micro-shards can be dealt to evenly, so 4 of 6 GPUs.
    """
    if strategy == "single":
        return 1
    available = count(kind)
    most = VIRTUAL if available is None else max(available, 1)
    if strategy == "exact":
        return max(size for size in _exact_sizes() if size <= most)
    return most


def require_world_size(strategy: str, kind: str, world_size: int, *, nodes: int = 1) -> None:
    """Raise UsageError when the strategy cannot run that many replicas on ``nodes`` machines like this one."""
    if world_size < 1:
        raise UsageError(f"--world-size {world_size}: a run has at least one replica")
    if strategy == "single" and world_size != 1:
        raise UsageError(
            f"--strategy single trains one replica, not {world_size}; leave --world-size out, or choose dp or ddp"
        )
    if strategy == "exact" and MICRO_SHARDS % world_size:
        sizes = ", ".join(map(str, _exact_sizes()))
        raise UsageError(
            f"--strategy exact needs a number of replicas that divides {MICRO_SHARDS} micro-shards evenly, "
            f"and {world_size} does not; choose a --world-size of {sizes}"
        )
    if strategy in PROCESSES and kind in _ALONE:
        raise UsageError(
            f"--strategy {strategy}: neither NCCL nor gloo carries gradients between processes for an {_NAMES[kind]};"
            " choose a strategy of one process (single, dp, functional, manual), or --device cpu"
        )
    if strategy not in PROCESSES and nodes > 1:
        raise UsageError(
            f"--strategy {strategy} is one process and stays on one machine; use --strategy ddp on {nodes} of them"
        )
    _check_room(kind, world_size, nodes)


def replicas(kind: str, count: int) -> tuple[torch.device, ...]:
    """Return the device of each replica of a strategy that keeps them in one process: ``cuda:0`` and so on.

    On the CPU all are ``cpu``, and ``.to`` would give each the very same tensors: clone them.
    """
    return tuple(device(kind, index) for index in range(count))


def _exact_sizes() -> list[int]:
    return [size for size in range(1, MICRO_SHARDS + 1) if MICRO_SHARDS % size == 0]


def _check_room(kind: str, world_size: int, nodes: int) -> None:
    available = count(kind)
    if available is None or world_size <= available * nodes:
        return
    name = _NAMES[kind]
    here = f"there is one {name}" if available == 1 else f"there are {available} {name}s"
    where = f"on each of {nodes} machines" if nodes > 1 else "here"
    raise UsageError(
        f"--world-size {world_size}: every replica needs its own device, and {here} {where}; choose fewer, "
        "or virtual replicas: --device cpu"
    )
