"""Random numbers that depend on what they are for, and on nothing else."""

from __future__ import annotations

from hashlib import blake2b

import torch


def generator(*purpose: str | int) -> torch.Generator:
    """A source of random numbers for one purpose, such as ("permutation", seed, epoch).

    It is apart from torch's global one, which dropout and initialisation use: drawing from one leaves the other as it
    was. The purpose is hashed because sums collide: ``seed + epoch``, which ``DistributedSampler`` takes, gives seed 0
    in epoch 1 the same numbers as seed 1 in epoch 0.
    """
    digest = blake2b("/".join(map(str, purpose)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)  # manual_seed takes what fits an int64
