"""Turns what ``torch.load(weights_only=True)`` refuses into plain data, and leaves all else as it is.

Namespaces, paths, NumPy numbers, dates and configurations are what they say; any other object that is nothing but its
attributes becomes the dict of these, one that is made of a single plain value (an enum) that value, and an array of
NumPy a tensor, or lists where torch has no such elements. What cannot be said so is refused, never dropped.
"""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Sequence, Special, at, show_path, walk
from ckptdoctor.checkpoint.first_bytes import pickle_protocol
from ckptdoctor.checkpoint.patterns import dropped_paths
from ckptdoctor.checkpoint.sharing import lost_without
from ckptdoctor.edits import Convert, Edit, MoveToCpu, Repickle
from ckptdoctor.edits.applied.moving import moved_tensors
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.globals import NEEDS_IMPORT, Blocked, BlockedCause, blocked_globals, outermost
from ckptdoctor.facts.plain_data import plain_forms
from ckptdoctor.rules.kit.blocked import conversion_edits
from ckptdoctor.rules.registry import find_rule
from ckptdoctor.shell import word
from ckptdoctor.wording import first_few

_LISTED = 10
_DROPPED = 8  # --drop options on one command line
_READ = 2  # the protocol all of which weights_only reads; of 3 it lacks bytes
_ARCHIVE = "torch zip"
_WHOLE_MODULE = "P204"


def weights_only_edits(checkpoint: Checkpoint, command: str = "") -> list[Edit]:
    """Return the edits after which torch refuses nothing in the file any more.

    Raises RefusedError, with the list of what is in the way and what does away with it: ``command`` is what was
    asked, for the options that it lacks ("": they are named alone).
    """
    refused = [each for each in blocked_globals(checkpoint) if each.path not in NEEDS_IMPORT]
    anew = _anew(checkpoint, refused)
    frozen = [path for path, node in walk(checkpoint.tree) if isinstance(node, Sequence) and node.kind == "frozenset"]
    if anew and frozen:
        trouble = [f"{show_path(path)} is a frozenset, which torch rejects in every pickle protocol" for path in frozen]
        raise _refusal(trouble, _way(checkpoint, refused, _drop_options(checkpoint, frozen), command))
    if not refused:
        return anew
    wanted = plain_forms(checkpoint.tree, outermost(refused))
    unseen = [each for each in refused if not (each.places or _is_bytes(each))]
    trouble = [
        f"{show_path(place.path)} cannot be loaded with weights_only=True: {reason}" for place, reason in wanted.stuck
    ]
    trouble += [f"{each.path} is named, but has no visible value" for each in unseen]
    if trouble:
        drop = None if unseen else _drop_options(checkpoint, [place.path for place, _ in wanted.stuck])
        raise _refusal(trouble, _way(checkpoint, refused, drop, command))
    made = conversion_edits(checkpoint, wanted)
    return [*made, *[edit for edit in anew if edit not in made]]


def _anew(checkpoint: Checkpoint, refused: list[Blocked]) -> list[Edit]:
    """Return the edits that write the pickle again where torch refuses its protocol, or how it makes empty bytes."""
    protocol = pickle_protocol(checkpoint.container) or 0
    if protocol <= _READ and not any(_is_bytes(each) for each in refused):
        return []
    legacy: list[Edit] = [Convert(_ARCHIVE)] if checkpoint.format != _ARCHIVE else []
    return [*legacy, Repickle()]


def _is_bytes(blocked: Blocked) -> bool:
    return blocked.path == "builtins.bytes"


def _drop_options(checkpoint: Checkpoint, paths: list[KeyPath]) -> str | None:
    """Return the options that leave out just what is at these paths.

    It is None where there are none, or a tensor would be lost.
    """
    wanted = list(dict.fromkeys([_entry(checkpoint, path) for path in paths]))
    if len(wanted) > _DROPPED or () in wanted:
        return None
    from glob import escape

    patterns = tuple([escape(show_path(path)) for path in wanted])
    try:
        found = dropped_paths(checkpoint, patterns)
    except RefusedError:  # nothing would be left
        return None
    outer = [path for path in wanted if not any(path[:end] in wanted for end in range(len(path)))]
    if sorted(map(show_path, found)) != sorted(map(show_path, outer)) or set(found) != set(outer):
        return None
    if lost_without(checkpoint, found):  # an optimizer holds the very weights that the state dict keeps
        return None
    return " ".join([f"--drop {word(pattern)}" for pattern in patterns])


def _entry(checkpoint: Checkpoint, path: KeyPath) -> KeyPath:
    """Return the innermost entry of a dict on the way.

    An item of a list or tuple cannot go without moving the others.
    """
    ends = [
        end
        for end in range(len(path), 0, -1)
        if not isinstance(path[end - 1], Special) and isinstance(at(checkpoint.tree, path[: end - 1]), Mapping)
    ]
    return path[: ends[0]] if ends else ()


def _way(checkpoint: Checkpoint, refused: list[Blocked], drop: str | None, command: str) -> str:
    """Return what the user can type next."""
    causes = {each.cause for each in refused}
    other = command.partition(" --")[0]
    module = find_rule(_WHOLE_MODULE) if BlockedCause.MODULE in causes else None
    if module is not None and any(finding.fix is not None for finding in module.run(checkpoint)):
        return f"choose: {other or 'ckptdoctor fix FILE'} --select {_WHOLE_MODULE} --unsafe-fixes"
    if BlockedCause.DEVICE in causes and any(moved_tensors(checkpoint, MoveToCpu())):
        return f"choose: {other or 'ckptdoctor fix FILE'} --to-cpu"
    if drop is not None:
        return f"leave it out: {command} {drop}".replace("  ", " ")
    return "ckptdoctor cannot write an equivalent file; ckptdoctor.load(FILE) in Python opens it and runs nothing"


def _refusal(trouble: list[str], way: str) -> RefusedError:
    lines = first_few([f"  {each}" for each in trouble], _LISTED, before="  … and ")
    return RefusedError("\n".join(["--weights-only-safe cannot convert everything to plain data", *lines, f"  {way}"]))
