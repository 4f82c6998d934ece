"""The rules about wrappers judge an error alike: keys have a wrapper's token on one side only."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ckptdoctor.facts import names
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair
from ckptdoctor.rules.messages import STRIP

_LED = f"{names.MODULE}."
_WRAPPED_CLASSES = ("DataParallel", "DistributedDataParallel", "OptimizedModule", "AveragedModel")


def all_in_wrapper(rest: IncompatibleKeys, tokens: Collection[str], wrapper: str) -> Iterator[Cause]:
    """Unexpected keys have one of the tokens, and no missing one has it."""
    from ckptdoctor.rules.kit.names_in_errors import without_wrappers

    for token in sorted(tokens):
        found = [key for key in rest.unexpected if token in key.split(".")]
        if found and not any(token in key.split(".") for key in rest.missing):
            inner = {without_wrappers(key) for key in found}
            sure = inner.issubset(rest.missing) or not rest.missing
            meaning = f'the file was saved from a model inside {wrapper}, which put "{token}." into its keys'
            yield Cause(meaning, Repair.SAFE if sure else Repair.NONE, (STRIP,), missing=inner, unexpected=found)


def parts_in_wrapper(rest: IncompatibleKeys, tokens: Collection[str]) -> Iterator[Cause]:
    """Yield the cause of missing keys that are unexpected ones with one of the tokens."""
    from ckptdoctor.rules.kit.names_in_errors import in_wrapper

    found = in_wrapper(rest, tokens)
    if found is not None:
        place, keys = found
        token = place.rpartition(".")[2]
        meaning = f'a part of the model was saved inside a wrapper, which put "{token}." into its keys ("{place}.")'
        yield Cause(meaning, Repair.SAFE, missing=keys.names, unexpected=keys.unexpected)


def led_keys(rest: IncompatibleKeys) -> list[str]:
    """Return the unexpected keys that begin with ``module.``, where most do and the model's keys do not."""
    led = [key for key in rest.unexpected if key.startswith(_LED)]
    if 2 * len(led) < len(rest.unexpected) or any(key.startswith(_LED) for key in rest.missing):
        return []
    return led if _is_bare(rest) else []


def _is_bare(rest: IncompatibleKeys) -> bool:
    """Return whether the model is not wrapped itself.

    A bare one would miss its keys, and the whole text would say so.
    """
    error = rest.error
    if error.model_class.rpartition(".")[2] in _WRAPPED_CLASSES:
        return False
    return bool(error.missing) or not (error.complete or error.first_only)
