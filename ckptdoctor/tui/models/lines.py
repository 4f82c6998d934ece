"""Every line of the screen is a part of the tree, or a tensor of the list in the order of a column.

Nobody makes a list of all lines of a tree: every open level knows on which of its lines its open children are, and a
line is looked up from the root down. What that takes grows with the depth of the tree and the logarithm of how many
levels are open side by side.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.checkpoint.natural import naturally
from ckptdoctor.filters.table import Rows, Table
from ckptdoctor.tui.models.tree import Tree, TreeBranch, TreeItem, TreeOrder, ValuesOf
from ckptdoctor.values.statistics import TensorValues

_SORTED = 60_000  # names that are put into natural order


@dataclass(frozen=True, slots=True)
class TreeLine:
    """One line: what is on it, the level it belongs to, its place there, and how many levels are above."""

    item: TreeItem
    parent: TreeBranch
    index: int
    depth: int


class Visible:
    """The lines of a tree."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._settle(tree.root)

    def __len__(self) -> int:
        return self.tree.root.height

    def at(self, number: int) -> TreeLine:
        """Return the content of a line, counted from 0. Raises IndexError when there are fewer."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        branch, depth = self.tree.root, 0
        while True:
            assert branch.children is not None
            nearest = bisect_right(branch.tops, number) - 1
            if nearest < 0:
                return TreeLine(branch.children[number], branch, number, depth)
            index = branch.open_at[nearest]
            child = branch.children[index]
            assert isinstance(child, TreeBranch)
            below = number - branch.tops[nearest]
            if below == 0 or below > child.height:
                index += max(0, below - child.height)
                return TreeLine(branch.children[index], branch, index, depth)
            branch, number, depth = child, below - 1, depth + 1

    def window(self, first: int, count: int) -> Iterator[TreeLine]:
        """Yield so many lines from the first on, as far as there are any."""
        for number in range(first, min(first + count, len(self))):
            yield self.at(number)

    def number(self, branch: TreeBranch, index: int) -> int:
        """Return the line of a child of an open level."""
        line = _top(branch, index)
        while branch.parent is not None:
            line += _top(branch.parent, branch.index) + 1
            branch = branch.parent
        return line

    def open(self, branch: TreeBranch) -> None:
        """Show the children of a level."""
        if not branch.is_open:
            branch.is_open = True
            if branch.parent is not None:
                insort(branch.parent.open_at, branch.index)
            self._settle(branch)

    def close(self, branch: TreeBranch) -> None:
        """Hide the children of a level; those of its children that are open stay so for the next time."""
        if branch.is_open and branch.parent is not None:
            branch.is_open = False
            branch.parent.open_at.pop(bisect_left(branch.parent.open_at, branch.index))
            self._settle(branch.parent)

    def open_all(self, branch: TreeBranch, most: int) -> None:
        """Open a level and those below it, nearest ones first, until there are ``most`` lines of them."""
        for each in self.tree.grow_below(branch, most):
            self.open(each)

    def reveal(self, path: KeyPath) -> int | None:
        """Open all levels above the thing at ``path`` and give its line; that of the nearest level that exists."""
        way = self.tree.grow_towards(path)
        for branch, _ in way:
            self.open(branch)
        return self.number(*way[-1]) if way else None

    def again(self, order: TreeOrder, rows: Rows | None, values_of: ValuesOf = lambda row: None) -> Visible:
        """Return the lines in another order, or of some rows only, with the same levels open. These stay."""
        made = Visible(Tree(self.tree.checkpoint, self.tree.table, rows, order, values_of))
        pairs = [(self.tree.root, made.tree.root)]
        for old, new in pairs:
            opened = {(each.path, each.prefix): each for each in old.opened}
            for child in made.tree.grow(new):
                if isinstance(child, TreeBranch) and (child.path, child.prefix) in opened:
                    made.open(child)
                    pairs.append((opened[child.path, child.prefix], child))
        return made

    def _settle(self, branch: TreeBranch) -> None:
        """Count the lines of a level and of those above it."""
        self.tree.grow(branch)
        above: TreeBranch | None = branch
        while above is not None:
            _measure(above)
            above = above.parent


def _measure(branch: TreeBranch) -> None:
    if branch.children is None:
        return
    extra, branch.tops = 0, []
    for index in branch.open_at:
        child = branch.children[index]
        assert isinstance(child, TreeBranch)
        branch.tops.append(index + extra)
        extra += child.height
    branch.height = len(branch.children) + extra


def _top(branch: TreeBranch, index: int) -> int:
    """Return the line of a child, counted within its level."""
    before = bisect_left(branch.open_at, index)
    if not before:
        return index
    nearest = branch.open_at[before - 1]
    assert branch.children is not None
    child = branch.children[nearest]
    assert isinstance(child, TreeBranch)
    return branch.tops[before - 1] + child.height + index - nearest


class SortColumn(Enum):
    """A column that the list can be sorted by; the value is its heading."""

    PLACE = "file order"
    NAME = "name"
    SHAPE = "shape"
    DTYPE = "dtype"
    ELEMENTS = "elements"
    BYTES = "bytes"
    DEVICE = "device"
    STD = "standard deviation"
    MIN = "smallest value"
    MAX = "largest value"
    NAN = "NaN"


_OF_VALUES = (SortColumn.STD, SortColumn.MIN, SortColumn.MAX, SortColumn.NAN)

# sorted by these, the largest comes first
_DESCENDING = frozenset({SortColumn.ELEMENTS, SortColumn.BYTES, SortColumn.SHAPE}) | {
    SortColumn.STD,
    SortColumn.MAX,
    SortColumn.NAN,
}


def ordered(
    table: Table,
    rows: Rows,
    column: SortColumn,
    backwards: bool = False,
    values_of: ValuesOf = lambda row: None,
) -> Rows:
    """Return the rows as a column orders them (sizes: largest first), or reversed; equal ones as in the file.

    Those whose values are not known come last, whatever the order of values.
    """
    if column is SortColumn.PLACE:
        if backwards:
            return list(reversed(rows))
        return rows
    falling = (column in _DESCENDING) is not backwards
    if column in _OF_VALUES:
        read = {row: values for row in rows if (values := values_of(row)) is not None}
        by_value = sorted(read, key=lambda row: _figure(read[row], column), reverse=falling)
        return [*by_value, *[row for row in rows if row not in read]]
    key = _key(table, column)
    if column is SortColumn.NAME:  # of which there is one for each row
        by_name = sorted(rows, key=key)
        if len(by_name) <= _SORTED:
            by_name = [by_name[place] for place in naturally(list(map(key, by_name)))]
        return by_name[::-1] if falling else by_name
    # by value first: few of them are different, and a loop in Python lets the screen have its turn, which sorting all
    # of them at once does not
    alike: dict[Any, list[int]] = {}
    for row in rows:
        alike.setdefault(key(row), []).append(row)
    return [row for value in sorted(alike, reverse=falling) for row in alike[value]]


def _figure(values: TensorValues, column: SortColumn) -> float:
    figures = {SortColumn.STD: values.std, SortColumn.MIN: values.min, SortColumn.MAX: values.max}
    return figures.get(column, float(values.nan))


def next_column(column: SortColumn, measured: bool = False) -> SortColumn:
    """Return the column after this one, the first after the last; those of values only where they are ``measured``."""
    columns = [each for each in SortColumn if measured or each not in _OF_VALUES]
    return columns[(columns.index(column) + 1) % len(columns)]


def _key(table: Table, column: SortColumn) -> Callable[[int], Any]:
    if column is SortColumn.NAME:
        return table.names.__getitem__
    if column is SortColumn.ELEMENTS:
        return table.elements.__getitem__
    if column is SortColumn.BYTES:
        return table.nbytes.__getitem__
    if column is SortColumn.SHAPE:
        tensors = table.tensors
        return lambda row: tensors[row].shape
    kinds, names = table.kinds, table.kind_names
    part = 0 if column is SortColumn.DTYPE else 1
    places = [sorted({name[part] for name in names}).index(name[part]) for name in names]
    return lambda row: places[kinds[row]]
