"""Unfolds contents to a tree of modules, each level grown when it is first opened.

State dicts unfold at the dots of their keys, everything else as it is nested. A chain of levels with one child each is
one line, a module with a single tensor is that tensor. A tensor is its row in the table; only levels are objects.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from threading import Lock
from typing import Any, Union

from ckptdoctor.checkpoint import (
    ROOT,
    Checkpoint,
    KeyPath,
    Mapping,
    Node,
    Opaque,
    Part,
    Sequence,
    Special,
    Tensor,
    children,
    show_part,
    show_path,
)
from ckptdoctor.checkpoint.dtypes import NUMPY_BUFFERS, NUMPY_MAKERS, NUMPY_SCALARS
from ckptdoctor.checkpoint.natural import naturally
from ckptdoctor.facts.numpy_values import array_of
from ckptdoctor.filters.table import Figures, Rows, Table, as_rows
from ckptdoctor.values.statistics import TensorValues

_PLAIN = 2_000  # plain values of one level that are lines of their own before the rest is counted
_BLOCK = 16  # keys that are looked at together at first
_SORTED = 20_000  # things of one level that are put into natural order
_COMPARED = 60_000  # tensors of one level that are looked through for blocks that are alike
_FEWEST = 4  # blocks that become one line
_NUMBERED = re.compile(r"(\d{1,9})((?:\..+)?)", re.ASCII | re.DOTALL)  # "12", and "12.experts" of an only child
_CHAIN = 64  # levels of nested contents that become one line
METADATA = Special("metadata")  # the step to the metadata of a safetensors file
_OF_NUMPY = NUMPY_SCALARS | NUMPY_MAKERS | NUMPY_BUFFERS


class TreeOrder(Enum):
    """The order of the lines of one level."""

    NATURAL = "natural order"  # as in the file, but 2 before 10, and blocks that are alike in one line
    FILE = "file order"
    LARGEST = "largest first"
    ELEMENTS = "most elements first"
    STD = "by standard deviation"
    MAX = "by largest value"
    MIN = "by smallest value"
    NAN = "most NaN first"

    @property
    def of_values(self) -> bool:
        """Whether it can only be told once values are read."""
        return self in _WORST_OF

    def next(self, measured: bool) -> TreeOrder:
        """Return the order that comes after this one; those of values only where these are ``measured``."""
        orders = [each for each in TreeOrder if measured or not each.of_values]
        return orders[(orders.index(self) + 1) % len(orders)]


# the order of values: the figure of a tensor, and of a level that of whatever in it comes first
_WORST_OF: dict[TreeOrder, Callable[[TensorValues], float]] = {
    TreeOrder.STD: lambda values: values.std,
    TreeOrder.MAX: lambda values: values.max,
    TreeOrder.MIN: lambda values: -values.min,
    TreeOrder.NAN: lambda values: values.nan,
}
ValuesOf = Callable[[int], "TensorValues | None"]


@dataclass(frozen=True, slots=True)
class TreeValue:
    """Something that is not a tensor and has nothing below it. ``more``: so many of them that have no lines."""

    name: str
    path: KeyPath
    node: Node
    more: int = 0


@dataclass(slots=True, eq=False)
class TreeBranch:
    """A level: nested contents (``node``), or a module whose name (``prefix``) keys of a state dict begin with.

    ``rows`` are the tensors at and below it. ``path`` is its place; for a module, that of its state dict.
    What follows ``children`` is kept by ``visible``: which children are open, on which of its lines each of them is,
    and how many lines there are below it.
    """

    name: str
    path: KeyPath
    rows: Rows
    node: Node = None
    prefix: str = ""
    kind: str = ""
    role: str = ""
    blocks: list[TreeBranch] = field(default_factory=list)  # of a fold: neighbours that are alike but for their number
    span: str = ""  # of a fold: their numbers, and what follows these in all of them
    parent: TreeBranch | None = None
    index: int = 0
    figures: Figures | None = None  # these two once somebody has asked for them
    kinds: list[tuple[str, str]] | None = None
    children: list[TreeItem] | None = None
    is_open: bool = False
    open_at: list[int] = field(default_factory=list)
    tops: list[int] = field(default_factory=list)
    height: int = 0

    @property
    def is_module(self) -> bool:
        """Whether it is a part of the keys of a state dict, not of the nested contents."""
        return bool(self.prefix)

    @property
    def opened(self) -> Iterator[TreeBranch]:
        """Its children that are open."""
        for index in self.open_at:
            child = (self.children or [])[index]
            if isinstance(child, TreeBranch):
                yield child


TreeItem = Union[TreeBranch, TreeValue, int]


class Tree:
    """The contents of a checkpoint, or only those of some rows, unfolded as far as somebody has looked."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        table: Table,
        rows: Rows | None = None,
        order: TreeOrder = TreeOrder.FILE,
        values_of: ValuesOf = lambda row: None,
    ) -> None:
        self.checkpoint = checkpoint
        self.table = table
        self.order = order
        self.values_of = values_of
        self.filtered = rows is not None
        self._growing = Lock()
        self._roles = {each.path: each.role.value for each in checkpoint.state_dicts}
        every = range(len(table)) if rows is None else rows
        role = self._roles.get(ROOT, "")
        self.root = TreeBranch("", ROOT, every, checkpoint.tree, role=role, is_open=True)

    def grow(self, branch: TreeBranch) -> list[TreeItem]:
        """Return the children of a level, made when they are first asked for; sorted as ``order`` says."""
        if branch.children is None:
            made = self._in_order(branch, list(self._children(branch)))
            # a thread may have prepared the same level meanwhile: then that stays. Nobody waits while one is made, for
            # it may be another level, of half a million tensors, when the screen asks for one of a dozen
            with self._growing:
                if branch.children is None:
                    branch.children = made
        return branch.children

    def grow_below(self, branch: TreeBranch, most: int) -> list[TreeBranch]:
        """Grow and return a level and those below it, nearest ones first, until they have ``most`` lines."""
        grown, waiting, lines = [], [branch], 0
        for each in waiting:
            lines += len(self.grow(each))
            if lines > most and each is not branch:
                break
            grown.append(each)
            waiting += [item for item in self.grow(each) if isinstance(item, TreeBranch)]
        return grown

    def grow_towards(self, path: KeyPath) -> list[tuple[TreeBranch, int]]:
        """Return the levels on the way from the root to ``path``, as far as they exist, each with its next child."""
        row, branch = self.table.row_of.get(path), self.root
        way: list[tuple[TreeBranch, int]] = []
        while True:
            self.grow(branch)
            index = _child_with(branch, row) if row is not None else _child_towards(branch, path)
            if index is None:
                return way
            way.append((branch, index))
            child = (branch.children or [])[index]
            if not isinstance(child, TreeBranch) or (row is None and child.path == path):
                return way
            branch = child

    def figures(self, branch: TreeBranch) -> Figures:
        """Return the number of tensors, elements and bytes at and below a level."""
        if branch.figures is None:
            branch.figures = self.table.figures(branch.rows)
        return branch.figures

    def kinds(self, branch: TreeBranch) -> list[tuple[str, str]]:
        """Return the different (dtype, device tag) at and below a level."""
        if branch.kinds is None:
            branch.kinds = self.table.kinds_of(branch.rows)
        return branch.kinds

    def name(self, parent: TreeBranch, item: TreeItem) -> str:
        """Return the name of a child of ``parent``, not yet escaped."""
        if not isinstance(item, int):
            return item.name
        path = self.table.tensors[item].path
        if len(path) == len(parent.path) + 1:
            return show_part(path[-1])[len(parent.prefix) :]
        return show_path(path[len(parent.path) :])

    def path(self, item: TreeItem) -> KeyPath:
        """Return the key path of an item."""
        return self.table.tensors[item].path if isinstance(item, int) else item.path

    def _in_order(self, branch: TreeBranch, items: list[TreeItem]) -> list[TreeItem]:
        if self.order not in (TreeOrder.NATURAL, TreeOrder.FILE):
            items.sort(key=self._weight, reverse=True)
        elif self.order is TreeOrder.NATURAL and not branch.blocks:
            items = self._naturally(branch, items)
            items = self._folded(branch, items) if len(branch.rows) <= _COMPARED else items
        for index, item in enumerate(items):
            if isinstance(item, TreeBranch):
                item.index = index
                item.parent = branch
        return items

    def _weight(self, item: TreeItem) -> float:
        """Return how far to the front an item belongs; what has no such figure comes last."""
        if isinstance(item, TreeValue):
            return -inf
        if self.order.of_values:
            known = map(self.values_of, (item,) if isinstance(item, int) else item.rows)
            return max([_WORST_OF[self.order](values) for values in known if values is not None], default=-inf)
        if self.order is TreeOrder.ELEMENTS:
            return self.table.elements[item] if isinstance(item, int) else self.figures(item).elements
        return self.table.nbytes[item] if isinstance(item, int) else self.figures(item).nbytes

    def _naturally(self, branch: TreeBranch, items: list[TreeItem]) -> list[TreeItem]:
        """Return the items with those whose names differ only in numbers sorted by these numbers, in their places."""
        if len(items) > _SORTED:
            return items
        names = [item.name if isinstance(item, TreeBranch) else self.name(branch, item) for item in items]
        # a block of one tensor is a line of its own, "12.attn.weight", and has its place among "11" and "13"
        leads = [name.partition(".")[0] for name in names]
        names = [lead if lead.isdecimal() else name for lead, name in zip(leads, names, strict=True)]
        return [items[place] for place in naturally(names)]

    def _folded(self, branch: TreeBranch, items: list[TreeItem]) -> list[TreeItem]:
        """Return the items with neighbours that are alike except for their number, such as layers, as one."""
        found: list[TreeItem] = []
        run: list[TreeBranch] = []
        number, tail, before = 0, "", None
        for item in [*items, None]:
            named = _NUMBERED.fullmatch(item.name) if isinstance(item, TreeBranch) and item.is_module else None
            block = item if isinstance(item, TreeBranch) and named is not None else None
            at, end = (int(named[1]), named[2]) if named is not None else (0, "")
            sign = self._signature(block) if block is not None else None
            if run and not (block is not None and (at, end, sign) == (number + 1, tail, before)):
                found += [self._fold(branch, run, tail)] if len(run) >= _FEWEST else run
                run = []
            number, tail, before = at, end, sign
            if block is not None:
                run.append(block)
            elif item is not None:
                found.append(item)
        return found

    def _signature(self, block: TreeBranch) -> object:
        """Return the keys, shapes and dtypes in a block, sorted, without what all its keys begin with."""
        steps, tensors, begin = self.table.steps(len(block.path)), self.table.tensors, len(block.prefix)
        return sorted([(steps[row][begin:], (each := tensors[row]).shape, each.dtype.name) for row in block.rows])

    def _fold(self, branch: TreeBranch, run: list[TreeBranch], tail: str) -> TreeBranch:
        first, last = [block.name.removesuffix(tail) for block in (run[0], run[-1])]
        span = f"{{{first}…{last}}}{tail}"
        rows = as_rows(sorted([row for block in run for row in block.rows]))
        for index, block in enumerate(run):
            block.index = index
        fold = TreeBranch(span, branch.path, rows, prefix=branch.prefix, blocks=run, span=span, parent=branch)
        for block in run:
            block.parent = fold
        return fold

    def _merged(self, branch: TreeBranch) -> TreeBranch:
        """Return the fold of a module that holds only blocks that are alike, under both names; else the module."""
        if self.order is not TreeOrder.NATURAL:
            return branch
        if not self.table.steps(len(branch.path))[branch.rows[0]][len(branch.prefix) :][:1].isdecimal():
            return branch
        branch.children = self._in_order(branch, list(self._modules(branch, branch.rows)))
        only = branch.children[0] if len(branch.children) == 1 else None
        if not (isinstance(only, TreeBranch) and only.blocks):
            return branch
        only.name, only.parent = f"{branch.name}.{only.span}", branch.parent
        return only

    def _children(self, branch: TreeBranch) -> Iterator[TreeItem]:
        if branch.blocks:
            yield from branch.blocks
            return
        if branch.is_module:
            yield from self._modules(branch, branch.rows)
            return
        if isinstance(branch.node, Tensor):
            yield from branch.rows
            return
        if branch.path in self._roles and self._roles[branch.path] != "optimizer":
            yield from self._state_dict(branch)
        else:
            yield from self._nested(branch, children(branch.node), branch.rows)
        if branch is self.root and self.checkpoint.metadata and not self.filtered:
            yield self._metadata(self.checkpoint.metadata)

    def _state_dict(self, branch: TreeBranch) -> Iterator[TreeItem]:
        """Yield the modules and tensors of a state dict, then whatever else is in it."""
        others = _others(branch.node)
        rows = branch.rows
        if others:
            deep, tensors = len(branch.path) + 1, self.table.tensors
            rows = as_rows([row for row in branch.rows if len(tensors[row].path) == deep])
        yield from self._modules(branch, rows)
        if others:
            yield from self._nested(branch, others, branch.rows)

    def _modules(self, branch: TreeBranch, rows: Rows) -> Iterator[TreeItem]:
        """Yield the rows by the next token of their keys: a module, or a tensor where that is all there is of it."""
        for name, runs in self._runs(rows, len(branch.path), len(branch.prefix)).items():
            first = runs[0].rows
            found = first if len(runs) == 1 else as_rows([row for run in runs for row in run.rows])
            if len(found) == 1:
                yield found[0]
            else:
                shared = _tokens(min([run.low for run in runs]), max([run.high for run in runs]))
                name = shared[len(branch.prefix) : -1]
                made = TreeBranch(name, branch.path, found, prefix=shared, parent=branch)
                yield self._merged(made) if len(rows) <= _COMPARED else made

    def _runs(self, rows: Rows, at: int, begin: int) -> dict[str | int, list[_Run]]:
        """Return neighbours with the same token at ``begin`` of their keys, by it; a tensor without one by its row."""
        steps = self.table.steps(at)
        groups: dict[str | int, list[_Run]] = {}
        place = 0
        while place < len(rows):
            start, key = place, steps[rows[place]]
            end = key.find(".", begin) if isinstance(key, str) else -1
            if end < 0 or not isinstance(key, str):
                place += 1
                groups[rows[start]] = [_Run(rows[start:place], "", "")]
            else:
                place, low, high = _past(steps, rows, place, key[: end + 1])
                groups.setdefault(key[begin:end], []).append(_Run(rows[start:place], low, high))
        return groups

    def _nested(self, branch: TreeBranch, entries: Iterable[tuple[Part, Node]], rows: Rows) -> Iterator[TreeItem]:
        below = self._by_step(rows, len(branch.path))
        plain = 0
        for part, child in entries:
            here = below.get(part, [])
            if isinstance(child, Tensor):
                yield from here[:1]
            elif here or not self.filtered:
                if unfolds(child):
                    yield self._level(branch, part, child, as_rows(here))
                    continue
                plain += 1
                if plain <= _PLAIN:
                    yield TreeValue(show_part(part), (*branch.path, part), child)
        if plain > _PLAIN:
            yield TreeValue("", branch.path, None, plain - _PLAIN)

    def _by_step(self, rows: Rows, at: int) -> dict[Part, list[int]]:
        tensors = self.table.tensors
        found: dict[Part, list[int]] = {}
        for row in rows:
            path = tensors[row].path
            if len(path) > at:
                found.setdefault(path[at], []).append(row)
        return found

    def _level(self, parent: TreeBranch, part: Part, node: Node, rows: Rows) -> TreeBranch:
        """Return the level of nested contents; levels below that are an only child become a part of its name."""
        path, name = (*parent.path, part), show_part(part)
        for _ in range(_CHAIN):
            below = _only_child(node) if path not in self._roles and not _kind(node) else None
            if below is None:
                break
            path, name, node = (*path, below[0]), f"{name}/{show_part(below[0])}", below[1]
        return TreeBranch(name, path, rows, node, kind=_kind(node), role=self._roles.get(path, ""), parent=parent)

    def _metadata(self, metadata: dict[str, str]) -> TreeBranch:
        node = Mapping("dict", tuple(metadata.items()))
        return TreeBranch("metadata", (METADATA,), range(0), node, parent=self.root)


def _child_with(branch: TreeBranch, row: int) -> int | None:
    """Return the index of the child that is the tensor of this row, or has it below; None where none does."""
    for index, item in enumerate(branch.children or ()):
        if item == row if isinstance(item, int) else isinstance(item, TreeBranch) and holds(item.rows, row):
            return index
    return None


def _child_towards(branch: TreeBranch, path: KeyPath) -> int | None:
    """Return the index of the child on the way to ``path``: a value there, or a level of nested contents."""
    for index, item in enumerate(branch.children or ()):
        if isinstance(item, int) or (isinstance(item, TreeBranch) and item.is_module):
            continue
        if item.path and path[: len(item.path)] == item.path:
            return index
    return None


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbours whose keys begin alike, with the first and the last of these keys in the alphabet."""

    rows: Rows
    low: str
    high: str


def _past(steps: list[Any], rows: Rows, place: int, lead: str) -> tuple[int, str, str]:
    """Return the first place whose key does not begin with ``lead``, and the extremes of the keys before it that do.

    Blocks grow until one has such a key, and are then halved until it is found.
    """
    low = high = steps[rows[place]]
    place, size, grows = place + 1, _BLOCK, True
    while size and place < len(rows):
        ends = _ends(steps, rows[place : place + size], lead)
        if ends is not None:
            low, high, place = min(low, ends[0]), max(high, ends[1]), min(place + size, len(rows))
        grows = grows and ends is not None
        size = size * 2 if grows else size // 2
    return place, low, high


def _ends(steps: list[Any], rows: Rows, lead: str) -> tuple[str, str] | None:
    """Return the first and the last key in the alphabet; None where one does not begin with ``lead``.

    Where these two do, all do: finding them is two steps in C, however many keys there are.
    """
    nearest = steps[rows[-1]]
    if not (isinstance(nearest, str) and nearest.startswith(lead)):
        return None
    keys = _taken(steps, rows)
    try:
        low, high = min(keys), max(keys)
    except TypeError:  # a damaged file may have other keys than texts
        return None
    return (low, high) if low.startswith(lead) and high.startswith(lead) else None


def _taken(steps: list[Any], rows: Rows) -> list[Any]:
    return steps[rows.start : rows.stop] if isinstance(rows, range) else [steps[row] for row in rows]


def _tokens(one: str, other: str) -> str:
    """Return the tokens that two keys begin with, up to and including the last dot."""
    differs = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[: one.rfind(".", 0, next(differs, min(len(one), len(other)))) + 1]


def _others(node: Node) -> list[tuple[Part, Node]]:
    """Return the contents of a state dict next to its tensors."""
    if isinstance(node, Mapping) and node.attributes is None:
        return [entry for entry in node.entries if type(entry[1]) is not Tensor]
    return [(part, child) for part, child in children(node) if not isinstance(child, Tensor)]


def holds(rows: Rows, row: int) -> bool:
    """Return whether the row is one of these."""
    if isinstance(rows, range):
        return row in rows
    place = bisect_left(rows, row)
    return place < len(rows) and rows[place] == row


def unfolds(node: Node) -> bool:
    """Return whether a node has contents to show below it; numbers and arrays of NumPy are values."""
    if isinstance(node, Opaque) and node.class_name in _OF_NUMPY:
        return array_of(node) is None and not is_number(node)
    return isinstance(node, Mapping | Sequence | Opaque) and any(True for _ in children(node))


def is_number(node: Node) -> bool:
    """Return whether a node is a number of NumPy."""
    return isinstance(node, Opaque) and node.class_name in NUMPY_SCALARS


def _only_child(node: Node) -> tuple[Part, Node] | None:
    """Return the only thing in a level, where that unfolds in turn; None otherwise."""
    below = children(node)
    first, second = next(below, None), next(below, None)
    return first if first is not None and second is None and unfolds(first[1]) else None


def _kind(node: Node) -> str:
    if isinstance(node, Opaque):
        return node.class_name
    kind = node.kind if isinstance(node, Mapping | Sequence) else ""
    return "" if kind in ("dict", "list", "collections.OrderedDict") else kind
