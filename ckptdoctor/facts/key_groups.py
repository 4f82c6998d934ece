"""Many keys as few modules: grouped with counts, matched to their nearest kin, and written as the fewest patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.noun import noun

# modules deeper than this are not told apart: keys of a million dots must not cost a million steps each
_DEPTH = 32


@noun
class KeyGroup:
    """The keys below one module (``""``: the top), and their elements."""

    module: str
    keys: tuple[str, ...]
    parameters: int


def grouped_keys(sizes: Mapping[str, int], at_most: int) -> list[KeyGroup]:
    """Keys (with their elements) by the deepest modules of which there are at most so many; largest first."""
    depth = min(max([key.count(".") for key in sizes], default=0), _DEPTH)
    while True:
        found: dict[str, list[str]] = {}
        for key in sizes:
            found.setdefault(".".join(key.split(".")[:-1][:depth]), []).append(key)
        if len(found) <= at_most or depth <= 1:
            break
        depth -= 1
    groups = [KeyGroup(module, tuple(keys), sum([sizes[key] for key in keys])) for module, keys in found.items()]
    return sorted(groups, key=lambda group: (-group.parameters, -len(group.keys)))


def nearest_key(key: str, shape: tuple[int, ...], candidates: Mapping[str, tuple[int, ...]]) -> str | None:
    """The candidate of the same shape that shares most tokens with ``key``, counted from the end and the beginning.

    One that does not even share the last token (``weight``) is no kin.
    """
    tokens = key.split(".")
    best, most = None, 0
    for other, other_shape in candidates.items():
        if other_shape == shape:
            parts = other.split(".")
            tail = _common(tokens[::-1], parts[::-1])
            score = 2 * tail + _common(tokens, parts) if tail else 0
            if score > most:
                best, most = other, score
    return best


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


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


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
