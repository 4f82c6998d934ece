"""Finding the chain of renames: time against the number of keys: ``python benchmarks/align.py``.

The checkpoint is a transformer whose containers and parts were renamed throughout; whose layers were arranged in stages
of other nesting as well; or another model altogether. torch only says what is missing and unexpected; the chain says
what each key is called. Both get their keys in memory.
"""

from __future__ import annotations

import statistics
import time
import zlib
from dataclasses import dataclass

import torch
from torch import nn

from ckptdoctor.match.search import find_moves

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


def rearranged(key: str) -> str:
    """The same in stages of ten layers, with parts that nest otherwise: numbers change their places."""
    _, number, where, part, leaf = key.split(".")
    parts = {
        "q_proj": "q",
        "k_proj": "k",
        "v_proj": "v",
        "o_proj": "out",
        "gate": "fc.gate",
        "up": "fc.up",
        "down": "fc.out",
    }
    around = "body" if where == "mlp" else "body.attention"
    return f"stages.{int(number) // 10}.{around}.{int(number) % 10}.{parts[part]}.{leaf}"


def foreign(key: str) -> str:
    """A name that has nothing to do with the others."""
    return f"other.{zlib.crc32(key.encode())}.{key.rpartition('.')[2]}"


CASES = {"renamed": renamed, "rearranged": rearranged, "foreign": foreign}


def main() -> None:
    """Seconds for several numbers of keys."""
    for keys in (500, 5_000, 50_000):
        target = model(keys)
        wanted = {key: Shaped(tuple(value.shape)) for key, value in target.state_dict().items()}
        for case, change in CASES.items():
            here = {change(key): value for key, value in wanted.items()}
            chain, theirs = [], []
            for _ in range(ROUNDS):
                start = time.perf_counter()
                moves = find_moves(here, wanted)
                chain.append(time.perf_counter() - start)
                unfit = {change(key): value for key, value in target.state_dict().items()}
                start = time.perf_counter()
                target.load_state_dict(unfit, strict=False)
                theirs.append(time.perf_counter() - start)
            names = {key: key for key in here}
            for move in moves:
                names = {key: move.change(name) for key, name in names.items()}
            right = sum(name in wanted and change(name) == key for key, name in names.items())
            ours, torchs = statistics.median(chain), statistics.median(theirs)
            chained = f"chain {ours:6.3f} s, {right:6,} right"
            print(f"{len(wanted):6,} keys {case:10}   {chained}   load_state_dict {torchs:6.3f} s", flush=True)


if __name__ == "__main__":
    main()
