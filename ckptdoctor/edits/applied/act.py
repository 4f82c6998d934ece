"""Defines an act: one kind of edit, with what it makes of contents, and what is said and held of that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.edits.elements import Elements, View
from ckptdoctor.edits.fix import Change
from ckptdoctor.noun import noun

# what a view of a storage as the edits before left it shows of the original's storages
Original = Callable[[View], Elements]


def _nothing(checkpoint: Checkpoint, edit: Any, original: Original) -> Mapping[str, Elements]:
    return {}


@noun
class Act:
    """``apply`` gives the contents after the edit, and raises RefusedError where that cannot be.

    ``told`` says what changes, given the contents before and after. ``holds`` is by key what the storages hold that the
    edit makes.
    """

    apply: Callable[[Checkpoint, Any], Checkpoint]
    told: Callable[[Checkpoint, Any, Checkpoint], Iterable[Change]]
    holds: Callable[[Checkpoint, Any, Original], Mapping[str, Elements]] = _nothing
