"""Random numbers that can be stopped and gone on with: seeds of every rank, and the states of all generators.

A run that is stopped and resumed draws exactly the numbers that it would have drawn without the stop. For that each
rank's generators are part of the checkpoint: torch's on the CPU, one per GPU, and Python's.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

import torch

from ckptdoctor.trainer.team import Team

RandomState = dict[str, Any]
"""``{"cpu": bytes tensor, "cuda": [one per GPU] or None, "mps": bytes tensor or None, "python": random.getstate()}``"""

_Devices = Sequence[torch.device]


def seed_everything(seed: int, rank: int = 0, epoch: int = 0) -> None:
    """Seed torch, on the CPU and on all GPUs, and Python. Every rank and epoch gets numbers of its own.

    Rank 0 begins with the very ``seed``: a run of one process draws what ``torch.manual_seed(seed)`` gives.
    """
    number = derived(seed, rank, epoch)
    random.seed(number)
    torch.manual_seed(number)  # every device of this process


def derived(seed: int, rank: int, epoch: int) -> int:
    """Return the seed of one rank from one epoch on: mixed, since seed + rank would make (0, 1) and (1, 0) the same."""
    if rank == 0 and epoch == 0:
        return seed
    digest = hashlib.sha256(f"seed {seed} rank {rank} epoch {epoch}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def capture(devices: _Devices) -> RandomState:
    """Return the states of this process's generators. Nothing is drawn from them."""
    cuda = [torch.cuda.get_rng_state(device) for device in devices if device.type == "cuda"]
    return {
        "cpu": torch.get_rng_state(),
        "cuda": cuda or None,
        "mps": torch.mps.get_rng_state() if any(device.type == "mps" for device in devices) else None,
        "python": random.getstate(),
    }


def gather(state: RandomState, team: Team) -> list[RandomState]:
    """Return the states of all ranks, in the order of the ranks. Collective; every rank must have as many devices."""
    return [_unpacked(packed, state) for packed in team.gather(_packed(state))]


def restore(states: Sequence[RandomState], team: Team, devices: _Devices, seed: int, epoch: int) -> None:
    """Set this rank's generators as they were; a rank that is new, or on other devices, starts from its own seed."""
    seed_everything(seed, team.rank, epoch)
    if team.rank >= len(states):
        return
    state = states[team.rank]
    torch.set_rng_state(state["cpu"].clone())
    random.setstate(state["python"])
    gpus = [device for device in devices if device.type == "cuda"]
    for device, saved in zip(gpus, state["cuda"] or (), strict=False):
        torch.cuda.set_rng_state(saved.clone(), device)
    if state["mps"] is not None and any(device.type == "mps" for device in devices):
        torch.mps.set_rng_state(state["mps"].clone())


def _parts(state: RandomState) -> list[torch.Tensor]:
    """Return the byte tensors of a state: of the CPU, of each GPU, of an Apple GPU."""
    return [state["cpu"], *(state["cuda"] or ()), *([] if state["mps"] is None else [state["mps"]])]


def _packed(state: RandomState) -> torch.Tensor:
    """Return one byte tensor, of the same length on every rank: what all_gather can send."""
    version, words, gauss = state["python"]
    whole = torch.tensor([version, *words, gauss is not None], dtype=torch.int64)
    half = torch.tensor([0.0 if gauss is None else gauss], dtype=torch.float64)
    return torch.cat([*_parts(state), whole.view(torch.uint8), half.view(torch.uint8)])


def _unpacked(packed: torch.Tensor, like: RandomState) -> RandomState:
    lengths = [part.numel() for part in _parts(like)]
    *parts, rest = packed.split([*lengths, packed.numel() - sum(lengths)])
    version, *words, has_gauss = rest[:-8].clone().view(torch.int64).tolist()
    gauss = rest[-8:].clone().view(torch.float64).item()
    # clones: torch.save writes the whole storage under a view
    cpu, *accelerators = [part.clone() for part in parts]
    return {
        "cpu": cpu,
        "cuda": None if like["cuda"] is None else accelerators[: len(like["cuda"])],
        "mps": None if like["mps"] is None else accelerators[-1],
        "python": (version, tuple(words), gauss if has_gauss else None),
    }
