"""Rules speak of several sets of weights in one file with these words and commands."""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Sequence

from ckptdoctor.checkpoint import Checkpoint, StateDict, show_path
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.tensor import same_checksums
from ckptdoctor.facts.weight_sets import is_average, tensors_of
from ckptdoctor.match.second_names import is_one
from ckptdoctor.rules.kit import wording

# what training code saves next to the weights
BESIDE = frozenset(("epoch", "global_step", "optimizer", "optimizer_states", "optimizer_state_dict", "lr_schedulers"))
_NAMED = 5  # sets that a sentence names before it only counts the others
_UNITS = ("kB", "MB", "GB", "TB")


def described(sets: Sequence[StateDict]) -> str:
    """``"model" (320 keys, 102 MB) and "ema" (320 keys, 102 MB, averaged)``."""
    return wording.listed(sets, _NAMED, say=_one)


def commands(checkpoint: Checkpoint, sets: Sequence[StateDict], wanted: Reference | None = None) -> tuple[str, ...]:
    """The command that takes each of the sets out of a file, and makes it fit what is ``wanted``.

    None for a folder, and none for a set at the top.
    """
    if os.path.isdir(checkpoint.path):
        return ()
    roots = [shlex.quote(show_path(each.path)) for each in sets[:_NAMED] if each.path]
    target = "" if wanted is None else f" --auto {wanted.option or f'--like {shlex.quote(wanted.source)}'}"
    return tuple([f"ckptdoctor fix FILE --root {root}{target}" for root in roots])


def one(sets: Sequence[StateDict]) -> bool:
    """Whether all sets hold the same values under the same names, as far as storages and checksums tell."""
    first, *others = [{each.key: each for each in one.tensors} for one in sets]
    return all(
        other.keys() == first.keys()
        and all(is_one(first[key], other[key]) or same_checksums(first[key], other[key]) is True for key in first)
        for other in others
    )


def size_words(nbytes: int) -> str:
    """``512 bytes``, ``5.9 kB``, ``102 MB``."""
    if nbytes < 1000:
        return wording.plural(nbytes, "byte")
    power = next((power for power in range(1, len(_UNITS)) if nbytes < 999.5 * 1000**power), len(_UNITS))
    scaled = nbytes / 1000**power
    return f"{scaled:,.0f} {_UNITS[power - 1]}" if scaled >= 99.5 else f"{scaled:,.1f} {_UNITS[power - 1]}"


def _one(state_dict: StateDict) -> str:
    tensors = tensors_of(state_dict)
    facts = [wording.plural(len(tensors), "key"), size_words(sum([each.nbytes for each in tensors]))]
    if is_average(state_dict):
        facts.append("averaged")
    return f'"{show_path(state_dict.path)}" ({", ".join(facts)})'
