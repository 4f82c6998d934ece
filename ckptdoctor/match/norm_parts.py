"""How weight norm and spectral norm call what they keep of a weight, in both APIs of torch."""

from __future__ import annotations

from collections.abc import Container

WEIGHT, SPECTRAL = "weight", "spectral"

# what follows the weight's name: (v, g) of weight norm, (original, u, v) of spectral norm
OLD_FORMATS = ((WEIGHT, ("_v", "_g")), (SPECTRAL, ("_orig", "_u", "_v")))
NEW_FORMATS = ((WEIGHT, (".original1", ".original0")), (SPECTRAL, (".original", ".0._u", ".0._v")))
# (original, mask) of torch.nn.utils.prune, whose product is the weight (``facts.pruning``)
_PRUNED = (("pruned", ("_orig", "_mask")),)
PARAMETRIZATIONS = "parametrizations"

_ENDINGS = tuple([ending for _, endings in (*OLD_FORMATS, *NEW_FORMATS, *_PRUNED) for ending in endings])


def parts_of(key: str) -> list[tuple[str, tuple[str, ...]]]:
    """What the parts of the weight ``key`` can be called, by norm."""
    module, dot, name = key.rpartition(".")
    new = f"{module}{dot}{PARAMETRIZATIONS}.{name}"
    return [
        (norm, tuple([base + ending for ending in endings]))
        for base, formats in ((key, OLD_FORMATS), (new, NEW_FORMATS))
        for norm, endings in formats
    ]


def is_called_part(key: str) -> bool:
    """Whether a key is called like a part."""
    return key.endswith(_ENDINGS)


def is_part(key: str, here: Container[str]) -> bool:
    """Whether a key is a part of a weight's norm: the other parts are here as well."""
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
