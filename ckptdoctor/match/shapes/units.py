"""S506: the same values under another shape, with sides of size 1 more or fewer."""

from __future__ import annotations

from ckptdoctor.match.shapes.pairs import Pair, Shape


def alike(pair: Pair) -> bool:
    """Whether both shapes are the same but for sides of size 1: then the elements are as many, in the same order."""
    return _squeezed(pair.here) == _squeezed(pair.there)


def loads_anyway(pair: Pair) -> bool:
    """Whether torch takes the difference without a word: a vector of one element for a scalar.

    Source: ``torch.nn.Module._load_from_state_dict``, "Backward compatibility: loading 1-dim tensor from 0.3.*".
    """
    return pair.here == (1,) and pair.there == ()


def _squeezed(shape: Shape) -> Shape:
    return tuple([size for size in shape if size != 1])
