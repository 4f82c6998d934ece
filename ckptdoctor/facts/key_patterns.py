"""The fewest patterns that match some keys and no others: by the modules above them, or by their last tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Tensor

# modules deeper than this are not told apart: keys of a million dots must not cost a million steps each
_DEPTH = 32


def key_patterns(keys: Sequence[str], others: Iterable[str]) -> list[str]:
    """Patterns (``criterion.*``, or whole keys) that match exactly these keys and none of the others."""
    taken = {other[:end] for other in others for end in _module_ends(other)}
    found: dict[str, None] = {}
    for key in keys:
        free = next((key[:end] for end in _module_ends(key) if key[:end] not in taken), None)
        found[_escaped(key) if free is None else f"{_escaped(free)}*"] = None
    return list(found)


def _escaped(text: str) -> str:
    """The text as a pattern that matches nothing else (``fnmatch``)."""
    return re.sub(r"([*?[])", r"[\1]", text)


def _module_ends(key: str) -> list[int]:
    """Where the modules' prefixes of a key end, shortest first, each with its dot; the outermost ``_DEPTH`` of them."""
    found: list[int] = []
    end = key.find(".") + 1
    while end and len(found) < _DEPTH:
        found.append(end)
        end = key.find(".", end) + 1
    return found


# ---- patterns that drop some tensors and no others


_TOKENS = 4  # tokens at the end of a key that a pattern may name


def drop_patterns(checkpoint: Checkpoint, going: Sequence[Tensor]) -> list[str]:
    """Patterns that match these tensors' keys, and no key of any other tensor in the checkpoint."""
    gone = {tensor.key for tensor in going}
    keys = list(gone) if len(gone) < len(going) else [tensor.key for tensor in going]
    staying = [tensor.key for tensor in checkpoint.tensors if tensor.key not in gone]
    by_module = key_patterns(keys, staying)
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
