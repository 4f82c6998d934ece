"""``--weights-only-safe``: what ``torch.load(weights_only=True)`` refuses becomes plain data, and all else stays.

Namespaces, paths, NumPy numbers, dates and configurations are what they say; any other object that is nothing but its
attributes becomes the dict of these, one that is made of a single plain value (an enum) that value, and an array of
NumPy a tensor. What cannot be said so is refused, never dropped.
"""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Opaque, Sequence, children, show_path
from ckptdoctor.edits import Convert, Edit, MakeTensors, Repickle, Replace
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.array_tensors import held_values
from ckptdoctor.facts.blocked_globals import Blocked, Cause, Place, blocked_globals, outermost
from ckptdoctor.facts.gathering import gathered
from ckptdoctor.facts.globals import NEEDS_IMPORT
from ckptdoctor.facts.plain_data import NotPlainError, as_plain
from ckptdoctor.facts.protocols import pickle_protocol

_LISTED = 10
_READ = 3  # the newest protocol that weights_only reads
_ARCHIVE = "torch zip"

# what other options are for: whole models, tensors of devices without storages
_OTHERS = {Cause.MODULE: "ckptdoctor fix --select P204 --unsafe-fixes", Cause.DEVICE: "ckptdoctor fix --to-cpu"}


def weights_only_edits(checkpoint: Checkpoint) -> list[Edit]:
    """The edits after which torch refuses nothing in the file any more.

    Raises RefusedError, with the list of what stands in the way, where plain data cannot say something.
    """
    refused = [each for each in blocked_globals(checkpoint) if each.path not in NEEDS_IMPORT]
    anew = _anew(checkpoint, refused)
    if not refused:
        return anew
    values: dict[KeyPath, object] = {}
    arrays: list[KeyPath] = []
    trouble: list[str] = []
    possible = _arrays(checkpoint.tree)
    for place in outermost(refused):
        if place.path in possible:
            arrays.append(place.path)
            continue
        try:
            values[place.path] = _plain(place)
        except NotPlainError as error:
            trouble.append(f"{show_path(place.path)} stays refused: {error}")
    trouble += [
        f"{each.path} is named, but no value of it is shown" for each in refused if not (each.places or _is_bytes(each))
    ]
    if trouble:
        ways = [_OTHERS[each.cause] for each in refused if each.cause in _OTHERS]
        raise _refusal(trouble, ways[0] if ways else "--drop KEY leaves one out")
    made: list[Edit] = [MakeTensors(tuple(arrays))] if arrays else []
    return [*made, *[Replace(path, value) for path, value in gathered(checkpoint.tree, values).items()], *anew]


def _anew(checkpoint: Checkpoint, refused: list[Blocked]) -> list[Edit]:
    """The pickle anew, where torch refuses how it is written: its protocol, or how it makes empty bytes."""
    protocol = pickle_protocol(checkpoint.container) or 0
    if protocol <= _READ and not any(_is_bytes(each) for each in refused):
        return []
    legacy: list[Edit] = [Convert(_ARCHIVE)] if checkpoint.format != _ARCHIVE else []
    return [*legacy, Repickle()]


def _is_bytes(blocked: Blocked) -> bool:
    return blocked.path == "builtins.bytes"


def _plain(place: Place) -> object:
    if not place.path:
        raise NotPlainError("it is the whole checkpoint")
    return as_plain(place.node, loosely=True)


def _arrays(tree: Node) -> set[KeyPath]:
    """Where arrays stand that can become tensors: with nothing but dicts and lists around them."""
    found: set[KeyPath] = set()
    stack: list[tuple[Node, KeyPath]] = [(tree, ())]
    while stack:
        node, path = stack.pop()
        for part, child in children(node):
            if isinstance(child, (Mapping, Sequence)):
                stack.append((child, (*path, part)))
            elif isinstance(child, Opaque) and held_values(child) is not None:
                found.add((*path, part))
    return found


def _refusal(trouble: list[str], way: str) -> RefusedError:
    more = [f"  … and {len(trouble) - _LISTED:,} more"] if len(trouble) > _LISTED else []
    lines = ["--weights-only-safe cannot say everything in plain data", *[f"  {each}" for each in trouble[:_LISTED]]]
    return RefusedError("\n".join([*lines, *more, f"  choose: {way}"]))
