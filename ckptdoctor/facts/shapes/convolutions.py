"""S504 and S513: the first convolution takes other channels; convolutions of other dimensions."""

from __future__ import annotations

from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.facts.shapes.kinds import is_first
from ckptdoctor.facts.shapes.pairs import Pair, model_order

_RANKS = (3, 4, 5)  # Conv1d, Conv2d, Conv3d


def input_channels(comparison: Comparison, pairs: list[Pair]) -> Pair | None:
    """The only convolution whose inputs alone differ, where it is the model's first and nothing else has its sizes."""
    found = [
        pair for pair in pairs if len(pair.here) in _RANKS and (change := pair.change) is not None and change[0] == 1
    ]
    if len(found) != 1:
        return None
    [pair] = found
    change = pair.change
    assert change is not None
    sides = {
        side
        for other in pairs
        if other is not pair and len(other.here) == len(other.there)
        for side in zip(other.here, other.there, strict=True)
    }
    if change[1:] in sides:  # a layer before it gives as many
        return None
    return pair if is_first(pair.key) or _first(comparison) == pair.key else None


def inflated(pairs: list[Pair]) -> tuple[Pair, ...]:
    """Convolutions with the same channels and the same kernel, but for one more side of it, or one fewer."""
    return tuple([pair for pair in pairs if _inflates(pair.here, pair.there) or _inflates(pair.there, pair.here)])


def _inflates(flat: tuple[int, ...], deep: tuple[int, ...]) -> bool:
    if len(flat) not in _RANKS or len(deep) != len(flat) + 1:
        return False
    return flat[:2] == deep[:2] and flat[2:] in (deep[3:], deep[2:-1])


def _first(comparison: Comparison) -> str | None:
    """The first convolution in the model's own order."""
    there = comparison.reference.tensors
    return next((key for key in model_order(comparison) if key in there and len(there[key].shape) in _RANKS), None)
