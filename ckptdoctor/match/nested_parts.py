"""Finds parts of one model that are in dicts of their own, inside each other or side by side."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Tensor, at
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.facts import names
from ckptdoctor.noun import noun

_TOKENS = names.WRAPPERS | {names.MODULE}  # of wrappers around a part, which later steps take away
_OUTER, _INNER = 3, 32  # levels around the parts, and inside them, that are looked at

Form = frozenset[tuple[str, tuple[int, ...]]]


@noun
class Parts:
    """The dict at ``path``, and its tensors as (joined name, key path below it); ``names`` are the parts right below.

    Every key that the target wants is one of them, in the shape that it wants; what else these parts hold is left over.
    """

    path: KeyPath
    tensors: tuple[tuple[str, KeyPath], ...]
    names: tuple[str, ...]


def parts_for(checkpoint: Checkpoint, reference: Reference) -> Parts | None:
    """Return the parts of the target in a checkpoint, or None where there are none, or more than one choice."""
    if not isinstance(checkpoint.tree, Mapping) or any(not each.path for each in checkpoint.state_dicts):
        return None
    wanted = {names.without_tokens(key, _TOKENS): expected.shape for key, expected in reference.tensors.items()}
    if not wanted or len(wanted) != len(reference.tensors):
        return None
    found = [parts for path in _places(checkpoint.tree) for parts in _parts(at(checkpoint.tree, path), path, wanted)]
    return found[0] if len(found) == 1 else None


def _places(tree: Mapping) -> Iterator[KeyPath]:
    stack: list[tuple[KeyPath, Mapping]] = [((), tree)]
    while stack:
        path, node = stack.pop()
        yield path
        if len(path) < _OUTER:
            stack += [((*path, part), each) for part, each in node.entries if isinstance(each, Mapping)]


def _parts(node: object, path: KeyPath, wanted: dict[str, tuple[int, ...]]) -> Iterator[Parts]:
    """Yield one part, or none."""
    assert isinstance(node, Mapping)
    known = {key.partition(".")[0] for key in wanted}
    tops = [
        (part, each) for part, each in node.entries if isinstance(part, str) and isinstance(each, (Mapping, Tensor))
    ]
    below = {part: list(_below(each, (part,))) for part, each in tops if part.partition(".")[0] in known}
    joined: dict[str, KeyPath] = {}
    for tensors in below.values():
        for place, tensor in tensors:
            name = names.without_tokens(".".join(map(str, place)), _TOKENS)
            if name in joined or wanted.get(name, tensor.shape) != tensor.shape:
                return
            joined[name] = place
    flat = all(len(place) == 1 for place in joined.values())
    one = len(below) == 1 and all(len(place) == 2 for place in joined.values())  # a state dict and its prefix
    if not joined.keys() >= wanted.keys() or flat or one or _has_rival(node, below):
        return
    yield Parts(path, tuple([(".".join(map(str, place)), place) for place in joined.values()]), tuple(below))


def _has_rival(node: Mapping, below: dict[str, list[tuple[KeyPath, Tensor]]]) -> bool:
    """Return whether something next to the parts has the keys and shapes of one of them: an average, a teacher."""
    forms = {_form(tensors) for tensors in below.values()}
    others = [(part, each) for part, each in node.entries if part not in below and isinstance(each, Mapping)]
    for part, each in others:
        inner = [each, *[child for _, child in each.entries if isinstance(child, Mapping)]]
        if any(_form(list(_below(one, (part,)))) in forms for one in inner):
            return True
    return False


def _form(tensors: list[tuple[KeyPath, Tensor]]) -> Form:
    return frozenset([(".".join(map(str, place[1:])), tensor.shape) for place, tensor in tensors])


def _below(node: object, path: KeyPath) -> Iterator[tuple[KeyPath, Tensor]]:
    """Yield every tensor below that only string keys lead to; nothing else is part of a model."""
    stack: list[tuple[KeyPath, object]] = [(path, node)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, Tensor):
            yield path, node
        elif isinstance(node, Mapping) and len(path) < _INNER:
            stack += [((*path, part), each) for part, each in reversed(node.entries) if isinstance(part, str)]
