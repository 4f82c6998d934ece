"""Rules speak of several sets of weights in one file with these words and commands."""

from __future__ import annotations

import os.path
from collections.abc import Sequence

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, show_path
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.facts.weight_sets import tensors_of
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.rules.kit import wording
from ckptdoctor.shell import quote, word

# what training code saves next to the weights
BESIDE = frozenset(("epoch", "global_step", "optimizer", "optimizer_states", "optimizer_state_dict", "lr_schedulers"))
_NAMED = 5  # sets that a sentence names before it only counts the others


def described(sets: Sequence[StateDict]) -> str:
    """Return ``"model" (320 keys, 102 MB) and "ema" (320 keys, 102 MB, averaged)``."""
    return wording.listed(sets, _NAMED, say=_one)


def commands(checkpoint: Checkpoint, sets: Sequence[StateDict], wanted: Reference | None = None) -> tuple[str, ...]:
    """Return the command that takes each of the sets out of a file, and makes it fit what is ``wanted``.

    None for a folder, and none for a set at the top.
    """
    if not is_address(checkpoint.path) and os.path.isdir(checkpoint.path):
        return ()
    roots = [word(show_path(each.path)) for each in sets[:_NAMED] if each.path]
    target = "" if wanted is None else f" --auto {wanted.option or f'--like {quote(wanted.source)}'}"
    return tuple([f"ckptdoctor fix FILE --root {root}{target}" for root in roots])


def _one(state_dict: StateDict) -> str:
    tensors = tensors_of(state_dict)
    facts = [wording.plural(len(tensors), "key"), wording.size_words(sum([each.nbytes for each in tensors]))]
    if is_average(state_dict):
        facts.append("averaged")
    return f'"{show_path(state_dict.path)}" ({", ".join(facts)})'


def is_average(state_dict: StateDict) -> bool:
    """Return whether its place or its keys say that it is a running average."""
    return state_dict.role is Role.EMA
