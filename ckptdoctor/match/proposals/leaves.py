"""Proposes parameters' names in other APIs: weight norm (N412), spectral norm (N413), gamma and beta (N414).

And recurrent layers and their cells (N423), whose gates come in one order: torch/nn/modules/rnn.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.match.moves import Gap, Move, move

# torch.nn.utils.weight_norm → torch.nn.utils.parametrizations.weight_norm: g is original0, v is original1
_WEIGHT_NORM = {"weight_g": "parametrizations.weight.original0", "weight_v": "parametrizations.weight.original1"}
# torch.nn.utils.spectral_norm → torch.nn.utils.parametrizations.spectral_norm
_SPECTRAL_NORM = {
    "weight_orig": "parametrizations.weight.original",
    "weight_u": "parametrizations.weight.0._u",
    "weight_v": "parametrizations.weight.0._v",
}
_NORM = {"gamma": "weight", "beta": "bias"}
_RECURRENT = frozenset({"weight_ih", "weight_hh", "bias_ih", "bias_hh"})
_LAYER = re.compile(r"(?P<lead>(?:.+\.)?)(?P<leaf>(?:weight|bias)_[ih]h)_l(?P<number>\d+)")

_FAMILIES = (
    ("N413", "weight_orig, weight_u, weight_v → parametrizations.weight", _SPECTRAL_NORM),
    ("N413", "parametrizations.weight → weight_orig, weight_u, weight_v", {v: k for k, v in _SPECTRAL_NORM.items()}),
    ("N412", "weight_g, weight_v → parametrizations.weight", _WEIGHT_NORM),
    ("N412", "parametrizations.weight → weight_g, weight_v", {v: k for k, v in _WEIGHT_NORM.items()}),
    ("N414", "gamma, beta → weight, bias", _NORM),
    ("N414", "weight, bias → gamma, beta", {v: k for k, v in _NORM.items()}),
)


def propose(gap: Gap) -> Iterator[Move]:
    """Yield each family in each direction."""
    for code, pattern, leaves in _FAMILIES:
        found = move(code, pattern, gap, _pairs(gap, leaves))
        if found is not None:
            yield found
    for pattern, pairs in (("layers → cells", _cells(gap)), ("cells → layers", _layers(gap))):
        found = move("N423", pattern, gap, pairs)
        if found is not None:
            yield found


def _cells(gap: Gap) -> Iterator[tuple[str, str]]:
    """Yield ``rnn.weight_ih_l0`` → ``rnn.weight_ih``, or ``rnn.0.weight_ih`` where the target has a list of cells."""
    there = set(gap.open)
    for key in gap.loose:
        found = _LAYER.fullmatch(key)
        if found is not None:
            lead, leaf, number = found["lead"], found["leaf"], found["number"]
            listed = f"{lead}{number}.{leaf}"
            if listed in there or number == "0":
                yield key, listed if listed in there else lead + leaf


def _layers(gap: Gap) -> Iterator[tuple[str, str]]:
    """Yield the same backwards."""
    there = set(gap.open)
    for key in gap.loose:
        lead, _, leaf = key.rpartition(".")
        if leaf not in _RECURRENT:
            continue
        dot = "." if lead else ""
        around, _, number = lead.rpartition(".")
        listed = f"{around}{'.' if around else ''}{leaf}_l{number}"
        yield key, listed if listed in there else f"{lead}{dot}{leaf}_l0"


def _pairs(gap: Gap, leaves: dict[str, str]) -> Iterator[tuple[str, str]]:
    for key in gap.loose:
        for old, new in leaves.items():
            if key == old or key.endswith(f".{old}"):
                yield key, key[: len(key) - len(old)] + new
