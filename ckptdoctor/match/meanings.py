"""Whether two names can mean one quantity: what a rename never turns into another one, however well the shapes fit."""

from __future__ import annotations

import re

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.regex import regex

_WORDS = regex(r"[A-Z]?[a-z]+|[A-Z]+")
_NUMBERS = ("float", "complex")
# words that make another thing of what they stand beside, by what they say: an average of a layer, its gradient, its
# teacher, an older copy, a second head. A name that gains or loses one is not the same name spelled otherwise.
_OTHERS = {
    word: meaning
    for meaning, words in {
        "average": ("ema", "swa", "avg", "average", "averaged", "momentum", "shadow", "polyak"),
        "optimizer": ("exp", "moment", "moments", "fisher", "grad", "grads", "gradient", "gradients", "hessian"),
        "teacher": ("teacher",),
        "target": ("target", "tgt"),
        "older": ("old", "prev", "previous", "frozen"),
        "second": ("aux", "auxiliary", "extra"),
        "inverse": ("inv", "inverse", "neg", "negative"),
        "function": ("log", "sq", "square", "squared", "sqrt", "std", "variance"),
        "change": ("delta", "diff"),
    }.items()
    for word in words
}
_ANY = regex("|".join(_OTHERS), re.IGNORECASE)  # few names hold any of them

_KERNEL = "kernel"  # the leaf of layers in Keras and Flax


def another_quantity(old: str, new: str, shape: tuple[int, ...]) -> bool:
    """Whether what is called ``old`` cannot become ``new`` by a rename.

    A square matrix says nothing of which side is which, so a parameter of another kind of owner (bare, a Keras kernel)
    is not the weight of a linear layer without a word. A kernel of Keras or Flax has its outputs last, so that it never
    is the weight of torch, whatever its sizes are.
    """
    return another_owner(old, new, shape) or another_thing(old, new)


def another_owner(old: str, new: str, shape: tuple[int, ...]) -> bool:
    """Whether a matrix would change the kind of its owner: which of its sides is which, nothing tells then."""
    if len(shape) > 1 and (old.endswith(_KERNEL) is not new.endswith(_KERNEL)):
        return True
    return len(shape) == 2 and shape[0] == shape[1] > 1 and _is_weight(old) != _is_weight(new)


def another_thing(old: str, new: str) -> bool:
    """Whether one of the names says that it is another thing made of the other: its average, say, or its gradient."""
    return (_ANY.search(old) or _ANY.search(new)) is not None and _others(old) != _others(new)


def is_code(tensor: Tensor, expected: Expected) -> bool:
    """Whether it holds integers and bits where numbers are wanted: codes that only a scale makes numbers of."""
    integers = tensor.dtype.kind not in _NUMBERS and tensor.numel > 1 and not tensor.parts
    return integers and expected.dtype is not None and expected.dtype.kind in _NUMBERS


def _is_weight(key: str) -> bool:
    # of a parametrised weight the leaf is "original1", and the module in front of it is called after the weight
    return "weight" in key.rpartition(".")[2].casefold() or ".parametrizations.weight." in f".{key}"


def _others(key: str) -> set[str]:
    return {_OTHERS[word] for each in _WORDS.findall(key) if (word := each.casefold()) in _OTHERS}
