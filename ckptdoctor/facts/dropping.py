"""The fewest patterns for some keys: by the modules that they lie in, or by the names that they end with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.facts import modules

_TOKENS = 4  # tokens at the end of a key that a pattern may name


def drop_patterns(checkpoint: Checkpoint, going: Sequence[Tensor]) -> list[str]:
    """Patterns that match these tensors' keys, and no key of any other tensor in the checkpoint."""
    gone = {tensor.key for tensor in going}
    keys = list(gone) if len(gone) < len(going) else [tensor.key for tensor in going]
    staying = [tensor.key for tensor in checkpoint.tensors if tensor.key not in gone]
    by_module = modules.patterns(keys, staying)
    by_ending = _endings(keys, staying) if len(by_module) > 1 else by_module
    return by_ending if len(by_ending) < len(by_module) else by_module


def _endings(keys: Iterable[str], staying: Iterable[str]) -> list[str]:
    """``*.attn.masked_bias``: the shortest ends that no key ends with that stays."""
    from glob import escape

    taken = {end for key in staying for end in _ends(key)}
    found: dict[str, None] = {}
    for key in keys:
        free = next((end for end in _ends(key) if end not in taken), None)
        found[escape(key) if free is None else f"*.{escape(free)}"] = None
    return list(found)


def _ends(key: str) -> Iterator[str]:
    """The last token, the last two, …; never the whole key, which has no dot before it."""
    tokens = key.rsplit(".", _TOKENS)
    for number in range(1, len(tokens)):
        yield ".".join(tokens[-number:])
