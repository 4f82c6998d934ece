"""How rules speak of several sets of weights in one file."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint import StateDict, show_path
from ckptdoctor.facts.weight_sets import averaged, tensors_of
from ckptdoctor.rules import wording

_NAMED = 5  # sets that a sentence names before it only counts the others
_UNITS = ("kB", "MB", "GB", "TB")


def described(sets: Sequence[StateDict]) -> str:
    """``"model" (320 keys, 102 MB) and "ema" (320 keys, 102 MB, averaged)``."""
    words = [_one(each) for each in sets[:_NAMED]]
    if len(sets) > _NAMED:
        words.append(f"{len(sets) - _NAMED:,} more")
    return wording.listed(words)


def size(nbytes: int) -> str:
    """``512 bytes``, ``5.9 kB``, ``102 MB``."""
    if nbytes < 1000:
        return wording.count(nbytes, "byte")
    power = next((power for power in range(1, len(_UNITS)) if nbytes < 999.5 * 1000**power), len(_UNITS))
    scaled = nbytes / 1000**power
    return f"{scaled:,.0f} {_UNITS[power - 1]}" if scaled >= 99.5 else f"{scaled:,.1f} {_UNITS[power - 1]}"


def _one(state_dict: StateDict) -> str:
    tensors = tensors_of(state_dict)
    facts = [wording.count(len(tensors), "key"), size(sum([each.nbytes for each in tensors]))]
    if averaged(state_dict):
        facts.append("averaged")
    return f'"{show_path(state_dict.path)}" ({", ".join(facts)})'
