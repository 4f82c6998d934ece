"""Finds the values that patterns mean, and the fewest patterns that mean some keys and no others.

Patterns are globs over key paths as they are shown, and over the keys of state dicts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from fnmatch import translate

from ckptdoctor.checkpoint import (
    Checkpoint,
    KeyPath,
    Mapping,
    Node,
    Opaque,
    Sequence,
    Special,
    Tensor,
    children,
    show_part,
    show_path,
)
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.errors import RefusedError

_SHOWN = 4  # names offered in a message
_COMPARED = 2000  # keys of a state dict among which the nearest are looked for


def dropped_paths(checkpoint: Checkpoint, patterns: tuple[str, ...]) -> tuple[KeyPath, ...]:
    """Return what ``--drop`` takes away: everything that matches.

    Raises RefusedError for a pattern that matches nothing.
    """
    found: dict[KeyPath, None] = {}
    for pattern in patterns:
        paths = [path for path, _ in _matches(checkpoint, pattern)]
        if not paths:
            raise _nothing("--drop", pattern, checkpoint)
        found.update(dict.fromkeys(paths))
    outermost = [path for path in found if not any(path[:end] in found for end in range(len(path)))]
    _leave_something(checkpoint, set(outermost))
    return tuple(outermost)


def kept_paths(checkpoint: Checkpoint, patterns: tuple[str, ...]) -> tuple[KeyPath, ...]:
    """Return what goes so that only what matches ``--keep`` stays.

    A pattern that matches keys of a state dict empties that state dict of its other keys. A pattern that matches
    whole key paths also takes away what is next to them, up to the root. State dicts without a match stay whole.
    Raises RefusedError for a pattern that matches nothing.
    """
    kept: set[KeyPath] = set()
    thinned: set[KeyPath] = set()
    for pattern in patterns:
        matches = list(_matches(checkpoint, pattern))
        if not matches:
            raise _nothing("--keep", pattern, checkpoint)
        for path, by_key in matches:
            kept.add(path)
            thinned.update([path[:-1]] if by_key else [path[:end] for end in range(len(path))])
    ways = {path[:end] for path in kept for end in range(len(path) + 1)}
    return tuple([path for path in _beside(checkpoint.tree, thinned) if path not in ways])


def named_paths(checkpoint: Checkpoint, option: str, pattern: str, root: KeyPath = ()) -> tuple[KeyPath, ...]:
    """Return what is below ``root`` and matches. Raises RefusedError, which names ``option``, where nothing does."""
    found = [path for path, _ in _matches(checkpoint, pattern) if path[: len(root)] == root]
    if not found:
        raise _nothing(option, pattern, checkpoint)
    return tuple(found)


def _beside(tree: Node, parents: set[KeyPath]) -> Iterator[KeyPath]:
    """Yield the children of these containers, in file order."""
    stack: list[tuple[KeyPath, Node]] = [((), tree)]
    while stack:
        path, node = stack.pop()
        below = [((*path, part), child) for part, child in _entries(node)]
        if path in parents:
            yield from (each for each, _ in below)
        stack.extend(reversed([each for each in below if isinstance(each[1], (Mapping, Sequence, Opaque))]))


def _matches(checkpoint: Checkpoint, pattern: str) -> Iterator[tuple[KeyPath, bool]]:
    """Yield (path, whether a key of a model matches on its own) of the outermost matches, in file order."""
    fits = re.compile(translate(pattern)).match
    state_dicts = {each.path for each in weights_among(checkpoint.state_dicts)}
    stack: list[tuple[KeyPath, str, Node]] = [((), "", checkpoint.tree)]
    while stack:
        path, shown, node = stack.pop()
        keys = path in state_dicts
        below = []
        for part, child in _entries(node):
            text = show_part(part)
            if keys and fits(text):
                yield (*path, part), True
            elif fits(shown + text):
                yield (*path, part), False
            elif not isinstance(child, Tensor) and isinstance(child, (Mapping, Sequence, Opaque)):
                below.append(((*path, part), f"{shown}{text}/", child))
        stack.extend(reversed(below))


def _entries(node: Node) -> list[tuple[str | int | Special, Node]]:
    """Return the children that can be taken out.

    These are entries, items and attributes of objects, not ``_metadata`` or arguments.
    """
    if isinstance(node, (Mapping, Sequence)):
        return list(node.entries if isinstance(node, Mapping) else enumerate(node.items))
    if isinstance(node, Opaque) and isinstance(node.state, Mapping):
        return list(node.state.entries)
    return []


def _leave_something(checkpoint: Checkpoint, gone: set[KeyPath]) -> None:
    top = [(part,) for part, _ in children(checkpoint.tree) if not isinstance(part, Special)]
    if top and all(path in gone for path in top):
        raise RefusedError("That would drop everything and leave an empty checkpoint.")


def _nothing(option: str, pattern: str, checkpoint: Checkpoint) -> RefusedError:
    """Return the refusal of a pattern without a match, with the names that are most like it."""
    from difflib import SequenceMatcher

    names: dict[str, None] = {}
    for part, _ in _entries(checkpoint.tree):
        names[show_part(part)] = None
    for state_dict in weights_among(checkpoint.state_dicts):
        names.update(dict.fromkeys(state_dict.keys[:_COMPARED]))
    near = sorted(names, key=lambda each: -SequenceMatcher(None, pattern, each).quick_ratio())[:_SHOWN]
    offer = f"; the nearest names are {', '.join(near)}" if near else f"; {show_path(())} is empty"
    return RefusedError(f"{option} {pattern} matches nothing{offer}.")


# modules deeper than this are not told apart: keys of a million dots must not cost a million steps each
_DEPTH = 32


def key_patterns(keys: Collection[str], others: Iterable[str]) -> list[str]:
    """Return patterns (``criterion.*``, or whole keys) that match exactly these keys and none of the others."""
    taken = {other[:end] for other in others for end in _module_ends(other)}
    found: dict[str, None] = {}
    for key in keys:
        free = next((key[:end] for end in _module_ends(key) if key[:end] not in taken), None)
        found[_escaped(key) if free is None else f"{_escaped(free)}*"] = None
    return list(found)


def _escaped(text: str) -> str:
    """Return the text as a pattern that matches nothing else (``fnmatch``)."""
    return re.sub(r"([*?[])", r"[\1]", text)


def _module_ends(key: str) -> list[int]:
    """Return where the modules' prefixes of a key end, shortest first, each with its dot.

    Only the outermost ``_DEPTH`` of them are given.
    """
    found: list[int] = []
    end = key.find(".") + 1
    while end and len(found) < _DEPTH:
        found.append(end)
        end = key.find(".", end) + 1
    return found


# ---- patterns that drop some tensors and no others


_TOKENS = 4  # tokens at the end of a key that a pattern may name


def drop_patterns(checkpoint: Checkpoint, going: Collection[Tensor]) -> list[str]:
    """Return patterns that match these tensors' keys, and no key of any other tensor in the checkpoint."""
    gone = {tensor.key for tensor in going}
    keys = list(gone) if len(gone) < len(going) else [tensor.key for tensor in going]
    staying = [tensor.key for tensor in checkpoint.tensors if tensor.key not in gone]
    by_module = key_patterns(keys, staying)
    by_ending = _endings(keys, staying) if len(by_module) > 1 else by_module
    return by_ending if len(by_ending) < len(by_module) else by_module


def _endings(keys: Iterable[str], staying: Iterable[str]) -> list[str]:
    """Return ``*.attn.masked_bias``: the shortest ends that no key ends with that stays."""
    from glob import escape

    taken = {end for key in staying for end in _ends(key)}
    found: dict[str, None] = {}
    for key in keys:
        free = next((end for end in _ends(key) if end not in taken), None)
        found[escape(key) if free is None else f"*.{escape(free)}"] = None
    return list(found)


def _ends(key: str) -> Iterator[str]:
    """Yield the last token, the last two, …; never the whole key, which has no dot before it."""
    tokens = key.rsplit(".", _TOKENS)
    for number in range(1, len(tokens)):
        yield ".".join(tokens[-number:])
