"""Finding the chain of renames: time against the number of keys: ``python benchmarks/align.py``.

The checkpoint is a transformer whose containers and parts were renamed throughout, the worst of the usual cases. torch
only says what is missing and unexpected; the chain says what each key is called. Both get their keys in memory.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch
from torch import nn

from ckptdoctor.facts.search import find_moves

PARTS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate",
    "mlp.up",
    "mlp.down",
)
ROUNDS = 3


@dataclass(frozen=True)
class Shaped:
    """A tensor, as far as the search looks at it."""

    shape: tuple[int, ...]


class Part(nn.Module):
    """A weight and a bias on the meta device."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8, 8, device="meta"))
        self.bias = nn.Parameter(torch.empty(8, device="meta"))


def model(keys: int) -> nn.Module:
    """A module with about so many keys, named like a language model."""
    root = nn.Module()
    root.layers = nn.ModuleList()
    for _ in range(keys // (2 * len(PARTS))):
        layer = nn.Module()
        layer.self_attn, layer.mlp = nn.Module(), nn.Module()
        for part in PARTS:
            where, name = part.split(".")
            setattr(getattr(layer, where), name, Part())
        root.layers.append(layer)
    return root


def renamed(key: str) -> str:
    """What another code base calls it."""
    for old, new in (("layers", "blocks"), ("self_attn", "attn"), ("q_proj", "query"), ("mlp", "feed_forward")):
        key = key.replace(old, new)
    return key


def main() -> None:
    """Seconds for several numbers of keys."""
    for keys in (500, 5_000, 50_000):
        target = model(keys)
        wanted = {key: Shaped(tuple(value.shape)) for key, value in target.state_dict().items()}
        here = {renamed(key): value for key, value in wanted.items()}
        chain, theirs = [], []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            moves = find_moves(here, wanted)
            chain.append(time.perf_counter() - start)
            foreign = {renamed(key): value for key, value in target.state_dict().items()}
            start = time.perf_counter()
            target.load_state_dict(foreign, strict=False)
            theirs.append(time.perf_counter() - start)
        names = {key: moves[0].change(key) for key in here} if moves else {}
        right = sum(renamed(name) == key and name in wanted for key, name in names.items())
        ours, torchs = statistics.median(chain), statistics.median(theirs)
        print(
            f"{len(wanted):6,} keys   chain {ours:6.3f} s, {right:,} right   load_state_dict {torchs:6.3f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
