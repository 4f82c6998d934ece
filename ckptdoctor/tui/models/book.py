"""An opened checkpoint as the browser holds it: the contents, their columns, and what was found so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Role, at
from ckptdoctor.filters.table import Table
from ckptdoctor.look.inspector import Peek
from ckptdoctor.tui.models.marks import Marks
from ckptdoctor.tui.models.tree import Branch, Tree
from ckptdoctor.tui.models.visible import Visible

_WEIGHTS = (Role.MODEL.value, Role.EMA.value)
_SCREEN = 200  # lines that are open to begin with


@dataclass(slots=True)
class Book:
    """All that screens and widgets share of one file. Made in a thread, from then on changed by the screen alone."""

    path: str
    checkpoint: Checkpoint
    table: Table
    marks: Marks
    lines: Visible
    peek: Peek

    def first_of(self, paths: Sequence[KeyPath]) -> KeyPath | None:
        """The first of these key paths at which a tensor lies, or else the first one if anything does."""
        tensor = next((path for path in paths if path in self.table.row_of), None)
        if tensor is not None or not paths:
            return tensor
        try:
            at(self.checkpoint.tree, paths[0])
        except KeyError:
            return None
        return paths[0]


def bind(path: str, checkpoint: Checkpoint) -> Book:
    """The book of a checkpoint whose headers have been read: everything that the first painting needs."""
    table = Table(checkpoint.tensors)
    lines = Visible(Tree(checkpoint, table))
    _unfold(lines)
    return Book(path, checkpoint, table, Marks(table), lines, Peek(path, checkpoint))


def _unfold(lines: Visible) -> None:
    """Open what people come to see, the weights, and then what is the only level there is; as far as a screen goes."""
    branch = lines.tree.root
    while True:
        below = [item for item in lines.tree.grow(branch) if isinstance(item, Branch)]
        weights = [each for each in below if each.role in _WEIGHTS]
        levels = [each for each in below if each.rows]
        chosen = weights[0] if weights else levels[0] if len(levels) == 1 else None
        if chosen is None or len(lines) + len(lines.tree.grow(chosen)) > _SCREEN:
            return
        lines.open(chosen)
        branch = chosen
