"""The rules about training states share the repair that leaves out states, which the training begins anew."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from glob import escape

from ckptdoctor.checkpoint import Checkpoint, KeyPath, show_path
from ckptdoctor.checkpoint.tree import mapping_at
from ckptdoctor.edits import Drop, Fix, Safety
from ckptdoctor.rules.kit import wording

_PATTERNS = 8  # --drop options on one command line


def forget_states(checkpoint: Checkpoint, optimizer: KeyPath, sick: Sequence[KeyPath] = ()) -> Fix | None:
    """Without the states of these parameters; of all where none is named, or many are. Options and numbers stay."""
    place = (*optimizer, "state")
    node = mapping_at(checkpoint.tree, place)
    every = [(*place, part) for part, _ in node.entries] if node is not None else []
    if not every:
        return None
    if sick and len(sick) <= _PATTERNS:
        title = f"drop the states of {wording.count(len(sick), 'parameter')}"
        return Fix(title, (Drop(tuple(sick)),), Safety.UNSAFE, " ".join(map(_drop, sick)))
    title = f"drop the states of {wording.all_of(len(every), 'parameter')}"
    return Fix(title, (Drop(tuple(every)),), Safety.UNSAFE, f"--drop {shlex.quote(escape(show_path(place)) + '/*')}")


def forget(path: KeyPath, what: str) -> Fix | None:
    """Without what lies at this path; None where that is everything."""
    return Fix(f"drop {what}", (Drop((path,)),), Safety.UNSAFE, _drop(path)) if path else None


def _drop(path: KeyPath) -> str:
    return f"--drop {shlex.quote(escape(show_path(path)))}"
