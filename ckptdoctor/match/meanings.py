"""Names the renames that are never made, however well shapes fit: to another quantity, or from part to weight."""

from __future__ import annotations

import re
from collections.abc import Container

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
    """Return whether what is called ``old`` cannot become ``new`` by a rename.

    A square matrix says nothing of which side is which, so a parameter of another kind of owner (bare, a Keras kernel)
    is not the weight of a linear layer without a word. A kernel of Keras or Flax has its outputs last, so that it never
    is the weight of torch, whatever its sizes are.
    """
    return another_owner(old, new, shape) or another_thing(old, new)


def another_owner(old: str, new: str, shape: tuple[int, ...]) -> bool:
    """Return whether a matrix would change the kind of its owner: which of its sides is which, nothing tells then."""
    if len(shape) > 1 and (old.endswith(_KERNEL) is not new.endswith(_KERNEL)):
        return True
    return len(shape) == 2 and shape[0] == shape[1] > 1 and _is_weight(old) != _is_weight(new)


def another_thing(old: str, new: str) -> bool:
    """Return whether one name says that it is another thing made of the other: its average, or its gradient."""
    return (_ANY.search(old) or _ANY.search(new)) is not None and _others(old) != _others(new)


def is_code(tensor: Tensor, expected: Expected) -> bool:
    """Return whether it holds integers and bits where numbers are wanted: codes that only a scale makes numbers of."""
    integers = tensor.dtype.kind not in _NUMBERS and tensor.numel > 1 and not tensor.parts
    return integers and expected.dtype is not None and expected.dtype.kind in _NUMBERS


def _is_weight(key: str) -> bool:
    # of a parametrised weight the leaf is "original1", and the module in front of it is called after the weight
    return "weight" in key.rpartition(".")[2].casefold() or ".parametrizations.weight." in f".{key}"


def _others(key: str) -> set[str]:
    return {_OTHERS[word] for each in _WORDS.findall(key) if (word := each.casefold()) in _OTHERS}


# ---- how weight norm and spectral norm call what they keep of a weight, in both APIs of torch


WEIGHT, SPECTRAL = "weight", "spectral"

# what follows the weight's name: (v, g) of weight norm, (original, u, v) of spectral norm
OLD_FORMATS = ((WEIGHT, ("_v", "_g")), (SPECTRAL, ("_orig", "_u", "_v")))
NEW_FORMATS = ((WEIGHT, (".original1", ".original0")), (SPECTRAL, (".original", ".0._u", ".0._v")))
# (original, mask) of torch.nn.utils.prune, whose product is the weight (``match.parametrized``)
_PRUNED = (("pruned", ("_orig", "_mask")),)
PARAMETRIZATIONS = "parametrizations"

_ENDINGS = tuple([ending for _, endings in (*OLD_FORMATS, *NEW_FORMATS, *_PRUNED) for ending in endings])


def parts_of(key: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return what the parts of the weight ``key`` can be called, by norm."""
    module, dot, name = key.rpartition(".")
    new = f"{module}{dot}{PARAMETRIZATIONS}.{name}"
    return [
        (norm, tuple([base + ending for ending in endings]))
        for base, formats in ((key, OLD_FORMATS), (new, NEW_FORMATS))
        for norm, endings in formats
    ]


def is_called_part(key: str) -> bool:
    """Return whether a key is called like a part."""
    return key.endswith(_ENDINGS)


def is_part(key: str, here: Container[str]) -> bool:
    """Return whether a key is a part of a weight's norm: the other parts are here as well."""
    if not is_called_part(key):
        return False
    for formats, new in ((OLD_FORMATS, False), (NEW_FORMATS, True), (_PRUNED, False)):
        for _, endings in formats:
            for ending in endings:
                base = key.removesuffix(ending)
                named = not new or base.split(".")[-2:-1] == [PARAMETRIZATIONS]
                if base != key and named and all(base + each in here for each in endings):
                    return True
    return False
