"""Holds an opened checkpoint: the contents, their columns, and what was found so far."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Role, at, show_path
from ckptdoctor.filters import found
from ckptdoctor.filters.table import Rows, Table
from ckptdoctor.findings import Finding, Severity
from ckptdoctor.look.inspector import Inspector
from ckptdoctor.tui.models.history import bookmarks
from ckptdoctor.tui.models.lines import Visible
from ckptdoctor.tui.models.on_disk import DiskState
from ckptdoctor.tui.models.tree import Tree, TreeBranch, TreeItem, TreeOrder
from ckptdoctor.values.statistics import TensorValues

_WEIGHTS = (Role.MODEL.value, Role.EMA.value)
_SCREEN = 200  # lines that are open to begin with


@dataclass(slots=True)
class OpenedCheckpoint:
    """All that screens and widgets share of one file. Made in a thread, from then on changed by the screen alone."""

    path: str
    checkpoint: Checkpoint
    table: Table
    badges: Badges
    lines: Visible
    inspector: Inspector
    values: Mapping[KeyPath, TensorValues] = field(default_factory=dict)  # as far as every byte was read
    glimpses: dict[KeyPath, TensorValues] = field(default_factory=dict)  # of what somebody looked at before that
    bookmarks: list[str] = field(default_factory=list)  # what has one, by ``name_of``
    state: DiskState | None = None  # of the file when it was read

    def values_of(self, row: int) -> TensorValues | None:
        """Return the values of a tensor in numbers; None where they have not been read."""
        return self.values.get(self.table.tensors[row].path)

    def glimpse_of(self, row: int) -> TensorValues | None:
        """Return the same, also where they were only read because somebody looked at what the tensor is in."""
        path = self.table.tensors[row].path
        return self.values.get(path) or self.glimpses.get(path)

    def name_of(self, item: TreeItem) -> str:
        """Return the key path of an item as text; that of a module ends with a dot."""
        if isinstance(item, int):
            return self.table.name(item)
        if isinstance(item, TreeBranch) and item.is_module:
            return show_path((*item.path, f"{item.prefix}{item.span}"))
        return show_path(item.path)

    def item_called(self, name: str) -> TreeItem | None:
        """Return the item that ``name_of`` calls by this name; None where there is none."""
        tree = self.lines.tree
        row = self.table.names.index(name) if name in self.table.names else None
        waiting: list[TreeBranch] = [tree.root] if row is None else []
        while waiting:
            for item in tree.grow(waiting.pop()):
                if not isinstance(item, int) and self.name_of(item) == name:
                    return item
                if isinstance(item, TreeBranch) and name.startswith(self.name_of(item).partition("{")[0].rstrip(".")):
                    waiting.append(item)
        return row

    def first_of(self, paths: Sequence[KeyPath]) -> KeyPath | None:
        """Return the first of these key paths that has a tensor, or else the first path if anything is there."""
        tensor = next((path for path in paths if path in self.table.row_of), None)
        if tensor is not None or not paths:
            return tensor
        try:
            at(self.checkpoint.tree, paths[0])
        except KeyError:
            return None
        return paths[0]


def opened_checkpoint(path: str, checkpoint: Checkpoint, state: DiskState | None = None) -> OpenedCheckpoint:
    """Return what the first painting needs of a checkpoint whose headers have been read."""
    table = Table(checkpoint.tensors)
    lines = Visible(Tree(checkpoint, table, order=TreeOrder.NATURAL))
    _unfold(lines)
    inspector = Inspector(path, checkpoint)
    marked = bookmarks(path)
    return OpenedCheckpoint(path, checkpoint, table, Badges(table), lines, inspector, bookmarks=marked, state=state)


def _unfold(lines: Visible) -> None:
    """Open what people come to see, the weights, and then what is the only level there is; as far as a screen goes."""
    branch = lines.tree.root
    while True:
        below = [item for item in lines.tree.grow(branch) if isinstance(item, TreeBranch)]
        weights = [each for each in below if each.role in _WEIGHTS]
        levels = [each for each in below if each.rows]
        chosen = weights[0] if weights else levels[0] if len(levels) == 1 else None
        if chosen is None or chosen.blocks or len(lines) + len(lines.tree.grow(chosen)) > _SCREEN:
            return
        lines.open(chosen)
        branch = chosen


_SEVERITIES = {severity.rank + 1: severity for severity in Severity}
_WORST = sorted(_SEVERITIES, reverse=True)
_AT_LEAST = {rank: bytes([max(rank, each) for each in range(256)]) for rank in _SEVERITIES}


class Badges:
    """The findings so far, by what they speak of."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.findings: list[Finding] = []
        self._rows: list[array[int]] = []
        self._ranks = bytearray(len(table))
        self._places: dict[KeyPath, int] = {}

    def touched(self, finding: Finding) -> array[int]:
        """Return the rows of the tensors that a finding names: work for a thread when there are many."""
        return found.touched(self.table, finding)

    def take(self, findings: Sequence[Finding], rows: Sequence[array[int]]) -> None:
        """Take up these findings in the place of all others, with what ``touched`` gave for each."""
        self.findings, self._rows, self._places = [], [], {}
        self._ranks = bytearray(len(self.table))
        for finding, its_rows in zip(findings, rows, strict=True):
            self.add(finding, its_rows)

    def add(self, finding: Finding, rows: array[int]) -> None:
        """Take up a finding, with what ``touched`` gave for it."""
        self.findings.append(finding)
        self._rows.append(rows)
        rank = finding.severity.rank + 1
        if rows and rows[-1] - rows[0] + 1 == len(rows):  # neighbours: all at once, however many
            begin, end = rows[0], rows[-1] + 1
            self._ranks[begin:end] = self._ranks[begin:end].translate(_AT_LEAST[rank])
        else:
            for row in rows:
                if self._ranks[row] < rank:
                    self._ranks[row] = rank
        for path in finding.keys if len(rows) < len(finding.keys) else ():
            if path not in self.table.row_of:
                self._mark_place(path, rank)

    def _mark_place(self, path: KeyPath, rank: int) -> None:
        for depth in range(1, len(path) + 1):
            self._places[path[:depth]] = max(rank, self._places.get(path[:depth], 0))

    def worst(self, item: TreeItem) -> Severity | None:
        """Return the severity of the worst finding about a tensor, or about anything at or below a level."""
        if isinstance(item, int):
            return _SEVERITIES.get(self._ranks[item])
        place = 0 if getattr(item, "is_module", False) else self._places.get(item.path, 0)
        below = self._worst_of(getattr(item, "rows", range(0)))
        return _SEVERITIES.get(max(place, below))

    def _worst_of(self, rows: Rows) -> int:
        if isinstance(rows, range):
            return next((rank for rank in _WORST if self._ranks.find(rank, rows.start, rows.stop) >= 0), 0)
        return max([self._ranks[row] for row in rows], default=0)

    def about(self, item: TreeItem) -> list[Finding]:
        """Return the findings that name a tensor or a value, or anything at or below a level, worst first."""
        both = zip(self.findings, self._rows, strict=True)
        marked = not isinstance(item, int) and not getattr(item, "is_module", False) and item.path in self._places
        named = [each for each, rows in both if _concerns(each, rows, item, marked)]
        return sorted(named, key=lambda finding: -finding.severity.rank)

    def rows_of(self, wanted: str) -> set[int]:
        """Return the rows of all findings of a code, a name or a severity; "*": of any."""
        return found.rows_among(zip(self.findings, self._rows, strict=True), wanted)


def _concerns(finding: Finding, rows: array[int], item: TreeItem, marked: bool) -> bool:
    """Return whether a finding with these rows is about the item; ``marked``: it may name a place without a tensor."""
    if isinstance(item, int):
        return _any_among(rows, range(item, item + 1))
    below = item.rows if isinstance(item, TreeBranch) else range(0)
    if below and _any_among(rows, below):
        return True
    if not marked or len(rows) == len(finding.keys):
        return False
    depth = len(item.path)
    return any(path[:depth] == item.path for path in finding.keys)


def _any_among(rows: array[int], wanted: Rows) -> bool:
    """Return whether any of the rows, which ascend, is among those that are wanted."""
    if not isinstance(wanted, range):
        return not set(wanted).isdisjoint(rows)
    place = bisect_left(rows, wanted.start)
    return place < len(rows) and rows[place] < wanted.stop
