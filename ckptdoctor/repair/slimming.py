"""``--slim``: what only resuming a training needs is left out: optimizers, schedulers, scalers, random generators.

The weights stay, averaged ones among them, and so does everything else: counters, settings, hyper-parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Part, Role, Sequence, children
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.edits import Drop, Edit
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.devices import rng_tensors
from ckptdoctor.facts.training_state import scalers, top

_GONE = (Role.OPTIMIZER, Role.SCHEDULER, Role.RNG)
# names at the top of the file, for what does not look like a state dict: an empty one, states of Python and NumPy
_NAMES = re.compile(
    r"(?:model_?)?(?:optim(?:izer)?|opt|(?:lr_?)?sched(?:uler)?|(?:native_)?(?:amp|grad|loss)?_?scaler|amp|rng|random)s?"
    r"(?:_?(?:state|states|state_dict|state_dicts|dict))?|(?:\w+_)?(?:rng|random)_states?",
    re.IGNORECASE,
)


def slim_edits(checkpoint: Checkpoint) -> list[Edit]:
    """The edits that leave out what only resuming needs. Raises RefusedError where there are no weights beside it."""
    if not any(each.role in WEIGHTS for each in checkpoint.state_dicts):
        raise RefusedError("--slim keeps the weights, and this file has none: it is needed to resume a training only.")
    kept = {
        each.path[:depth] for each in checkpoint.state_dicts if each.role in WEIGHTS for depth in _depths(each.path)
    }
    paths = [path for path in dict.fromkeys(_found(checkpoint)) if path and path not in kept]
    whole = _outermost(checkpoint.tree, paths, kept)
    return [Drop(whole)] if whole else []


def _depths(path: KeyPath) -> range:
    return range(len(path) + 1)


def _found(checkpoint: Checkpoint) -> Iterator[KeyPath]:
    for state_dict in checkpoint.state_dicts:
        if state_dict.role in _GONE:
            yield state_dict.path
    for path, _ in scalers(checkpoint):
        yield path
    for tensor in rng_tensors(checkpoint):
        yield tensor.path
    for name in top(checkpoint):
        if _NAMES.fullmatch(name):
            yield (name,)


def _outermost(tree: Node, paths: list[KeyPath], kept: set[KeyPath]) -> tuple[KeyPath, ...]:
    """The paths, and instead of them the lists and dicts that hold nothing else."""
    going = set(paths)
    around = {path[:depth] for path in paths for depth in range(1, len(path))}
    parts = _parts(tree, around)
    for path in sorted(around - kept, key=len, reverse=True):
        inside = parts.get(path, ())
        if inside and all((*path, part) in going for part in inside):
            going.add(path)
    found = [next(path[:depth] for depth in range(1, len(path) + 1) if path[:depth] in going) for path in paths]
    return tuple(dict.fromkeys(found))


def _parts(tree: Node, around: set[KeyPath]) -> dict[KeyPath, list[Part]]:
    """What lies directly in the lists and dicts at these paths, all of whose parents are among them."""
    found: dict[KeyPath, list[Part]] = {}
    stack: list[tuple[KeyPath, Node]] = [((), tree)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, (Mapping, Sequence)):
            below = list(children(node))
            found[path] = [part for part, _ in below]
            stack += [((*path, part), child) for part, child in below if (*path, part) in around]
    return found
