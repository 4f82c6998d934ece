"""Parameters that other APIs call by other names: weight norm (N412), spectral norm (N413), gamma and beta (N414)."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.facts.moves import Gap, Move, move

# torch.nn.utils.weight_norm → torch.nn.utils.parametrizations.weight_norm: g is original0, v is original1
_WEIGHT_NORM = {"weight_g": "parametrizations.weight.original0", "weight_v": "parametrizations.weight.original1"}
# torch.nn.utils.spectral_norm → torch.nn.utils.parametrizations.spectral_norm
_SPECTRAL_NORM = {
    "weight_orig": "parametrizations.weight.original",
    "weight_u": "parametrizations.weight.0._u",
    "weight_v": "parametrizations.weight.0._v",
}
_NORM = {"gamma": "weight", "beta": "bias"}

_FAMILIES = (
    ("N413", "weight_orig, weight_u, weight_v → parametrizations.weight", _SPECTRAL_NORM),
    ("N413", "parametrizations.weight → weight_orig, weight_u, weight_v", {v: k for k, v in _SPECTRAL_NORM.items()}),
    ("N412", "weight_g, weight_v → parametrizations.weight", _WEIGHT_NORM),
    ("N412", "parametrizations.weight → weight_g, weight_v", {v: k for k, v in _WEIGHT_NORM.items()}),
    ("N414", "gamma, beta → weight, bias", _NORM),
    ("N414", "weight, bias → gamma, beta", {v: k for k, v in _NORM.items()}),
)


def propose(gap: Gap) -> Iterator[Move]:
    """Each family in each direction."""
    for code, pattern, leaves in _FAMILIES:
        found = move(code, pattern, gap, _pairs(gap, leaves))
        if found is not None:
            yield found


def _pairs(gap: Gap, leaves: dict[str, str]) -> Iterator[tuple[str, str]]:
    for key in gap.loose:
        for old, new in leaves.items():
            if key == old or key.endswith(f".{old}"):
                yield key, key[: len(key) - len(old)] + new
