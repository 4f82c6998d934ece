"""Tells the elements of a tensor by the ranges of the original that they are, and compares them with ``Elements``.

An account says of a storage that an edit made what it must hold: a window on a storage, several one after another, or
something computed of such. ``unlike`` asks both sides, at the corners and along every dimension, which byte of which
original storage an index shows: the way from an index to a byte is worked out here, whatever the elements are built of.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, product
from math import prod
from typing import NamedTuple, Union

from ckptdoctor.checkpoint import Storage, Tensor
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits.elements import (
    Calculated,
    Converted,
    Dequantized,
    Elements,
    Joined,
    Normed,
    Reshaped,
    Scattered,
    View,
)
from ckptdoctor.edits.quantization import AFFINE, FOUR

_alone = cache(lambda device: frozenset([device]))  # one object for the many storages of one device

Shape = tuple[int, ...]
Index = tuple[int, ...]


class Store:
    """A storage, as the edits leave it.

    ``noun`` is the original's storage, or says what a new one is like. ``kept`` are the byte ranges that it shrank to,
    ``holds`` what a new one holds, ``devices`` the tags that it may have had when ``born`` retaggings were done.
    ``bound`` is the key of the wanted storage that it is, once that was met.
    """

    __slots__ = ("_before", "born", "bound", "devices", "holds", "kept", "noun")

    def __init__(self, noun: Storage, holds: Shown | None = None, born: int = 0) -> None:
        self.noun = noun
        self.holds = holds
        self.kept: tuple[tuple[int, int], ...] | None = None
        self._before: tuple[int, ...] = (0,)
        self.born = born
        self.bound: str | None = None
        self.devices = _alone(noun.device)

    @property
    def nbytes(self) -> int:
        """Its length now."""
        return self.noun.nbytes if self.kept is None else self._before[-1]

    def shrink(self, kept: tuple[tuple[int, int], ...]) -> None:
        """Keep these ranges from now on."""
        self.kept = kept
        self._before = (0, *accumulate([length for _, length in kept]))

    def place_of(self, byte: int) -> int:
        """Return where one of its bytes is since it shrank, or -1 for one that is gone."""
        if self.kept is None:
            return byte
        at = bisect_right(self.kept, (byte, self.noun.nbytes)) - 1
        if at < 0 or not self.kept[at][0] <= byte < sum(self.kept[at]):
            return -1
        return self._before[at] + byte - self.kept[at][0]


class Window(NamedTuple):
    """A view of a storage in its bytes of before it shrank; ``of`` is its length when the view was taken."""

    store: Store
    start: int
    width: int
    shape: Shape
    stride: Shape
    of: int


class Inline(NamedTuple):
    """Elements that are not in a storage."""

    data: object
    width: int
    shape: Shape
    stride: Shape
    start: int = 0

    def __hash__(self) -> int:
        """Hash all but the data, which need not be hashable."""
        return hash((self.width, self.shape, self.stride, self.start))


class Refolded(NamedTuple):
    """The same in C order under another shape."""

    inner: Shown
    shape: Shape


class Turned(NamedTuple):
    """The same with its dimensions in another order."""

    inner: Shown
    dims: tuple[int, ...]
    shape: Shape


class Ranges(NamedTuple):
    """Ranges along ``dim`` one after another: (number of the part, start, stop)."""

    parts: tuple[Shown, ...]
    dim: int
    order: tuple[tuple[int, int, int], ...]
    shape: Shape


class Computed(NamedTuple):
    """Something computed of others; ``facts`` are fields of the ``Elements`` that say how."""

    kind: type
    parts: tuple[Shown, ...]
    facts: tuple[tuple[str, object], ...]
    shape: Shape


Shown = Union[Window, Inline, Refolded, Turned, Ranges, Computed]
_COMPUTED = (Normed, Dequantized, Calculated, Converted, Scattered)
_Address = tuple[object, int]  # the key of a storage, bytes, or something computed; and which byte, or element


class Scales(NamedTuple):
    """Whose scale is whose in a quantised weight of ``shape``, which ``runs`` must say.

    There are so many ``scales``; 0: one number for all, in the edit.
    """

    scheme: str
    block: tuple[int, int]
    shape: Shape
    scales: int

    def agree(self, runs: tuple[int, int, int, int]) -> bool:
        """Return whether the elements at the ends of blocks have the scales that they must have."""
        rows, columns, high, wide = runs
        if 0 in self.shape:
            return True
        if self.scheme == FOUR:  # the size of a block is in the file
            return runs == (1, prod(self.shape), 1, 0)
        if self.scales == 0 or (self.scales == 1 and self.scheme != AFFINE and self.block == (0, 0)):
            return runs == (1, prod(self.shape), 1, max(1, prod(self.shape)))
        if rows * columns != prod(self.shape) or high < 1 or wide < 1:
            return False
        ends = [{0, 1, size // 2, size - 1} for size in self.shape]
        for dim, size in zip((-2, -1), self.block, strict=True):
            if len(ends) >= -dim:
                ends[dim] |= {size - 1, size, 2 * size}
        for index in product(
            *[[at for at in some if 0 <= at < size] for some, size in zip(ends, self.shape, strict=True)]
        ):
            row, column = divmod(_number(index, self.shape), columns)
            told = (row // high * -(-columns // wide) + column // wide) % self.scales
            if told != self._of(index):
                return False
        return True

    def _of(self, index: Index) -> int:
        if self.scheme == AFFINE:
            return index[self.block[0]]
        (*leading, each, columns), (*before, row, column) = (1, *self.shape), (0, *index)
        high, wide = self.block[0] or each, self.block[1] or columns
        down, across = -(-each // high), -(-columns // wide)
        return (_number(tuple(before), tuple(leading)) * down + row // high) * across + column // wide


def window(tensor: Tensor, store: Store) -> Window:
    """Return what a plain tensor shows of its storage."""
    width = max(1, tensor.dtype.bits // 8)
    return Window(store, tensor.offset * width, width, tensor.shape, tensor.stride, store.nbytes)


def span(tensor: Tensor) -> tuple[int, int]:
    """Return the first byte of its storage that a view touches, and one past the last."""
    if 0 in tensor.shape:
        first = last = tensor.offset
    else:
        first = tensor.offset
        last = first + 1 + sum([(size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True)])
    return first * tensor.dtype.bits // 8, (last * tensor.dtype.bits + 7) // 8


def turned(shown: Shown, dims: tuple[int, ...]) -> Shown:
    """Put the dimensions in another order: a window stays one."""
    shape = tuple([shown.shape[dim] for dim in dims])
    if isinstance(shown, Window):
        return shown._replace(shape=shape, stride=tuple([shown.stride[dim] for dim in dims]))
    return Turned(shown, dims, shape)


def all_of(store: Store, width: int) -> Shown:
    """Return everything that a storage holds, in a row."""
    pieces = store.kept or ((0, store.noun.nbytes),)
    runs = [Window(store, start, width, (length // width,), (1,), store.nbytes) for start, length in pieces]
    order = tuple([(number, 0, run.shape[0]) for number, run in enumerate(runs)])
    return runs[0] if len(runs) == 1 else Ranges(tuple(runs), 0, order, (sum([run.shape[0] for run in runs]),))


def joined(parts: tuple[Shown, ...], dim: int, order: tuple[tuple[int, int, int], ...]) -> Ranges:
    """Return the ranges of the parts one after another along ``dim``."""
    shape = list(parts[0].shape)
    shape[dim] = sum([stop - start for _, start, stop in order])
    return Ranges(parts, dim, order, tuple(shape))


def unlike(shown: Shown, elements: Elements) -> str | None:
    """Return what ``elements`` hold otherwise than they must, or None for nothing that can be told by asking."""
    shown, elements = _plain(shown), _without_refolding(elements)
    if isinstance(shown, Computed) or isinstance(elements, _COMPUTED):
        return _computed_unlike(shown, elements)
    if prod(shown.shape) != prod(elements.shape):
        return f"{prod(elements.shape):,} elements instead of {prod(shown.shape):,}"
    if 0 in shown.shape:
        return None
    if isinstance(shown, Window) and isinstance(elements, View) and shown.store.holds is None:
        known = shown.store.kept is None and elements.held is None
        key, mine = shown.store.noun.key, (shown.start, shown.width, shown.shape, shown.stride)
        if (
            known
            and elements.source == key
            and mine == (elements.start, elements.width, elements.shape, elements.stride)
        ):
            return None
    for at in _probes(shown, elements):
        wanted, got = _address(shown, _index(at, shown.shape)), _address_in(elements, _index(at, elements.shape))
        if not _same(wanted, got):
            return f"element {at:,} would be {_told(got)} instead of {_told(wanted)}"
    return None


def _plain(shown: Shown) -> Shown:
    """Tell it by what the storage holds that it is all of, as far as that goes."""
    while isinstance(shown, (Window, Refolded)):
        if isinstance(shown, Window):
            holds, whole = shown.store.holds, shown.start == 0 and shown.stride == contiguous_stride(shown.shape)
            if holds is None or not whole or prod(holds.shape) != prod(shown.shape):
                return shown
            shown = holds
        elif isinstance(_plain(shown.inner), Computed):
            shown = _plain(shown.inner)
        else:
            return shown
    return shown


def _without_refolding(elements: Elements) -> Elements:
    while isinstance(elements, Reshaped) and isinstance(elements.inner, (Reshaped, *_COMPUTED)):
        elements = elements.inner
    return elements


def _computed_unlike(shown: Shown, elements: Elements) -> str | None:
    if not isinstance(shown, Computed) or not isinstance(elements, _COMPUTED) or type(elements) is not shown.kind:
        return f"{type(elements).__name__.lower()} elements, which no edit makes"
    for name, value in (*shown.facts, ("shape", shown.shape)):
        told = getattr(elements, name)
        if not (value.agree(told) if isinstance(value, Scales) else told == value):
            return f"the {name} of what is computed would be {told} instead of {value}"
    if len(elements.parts) != len(shown.parts):
        return f"it would be computed from {len(elements.parts)} tensors instead of {len(shown.parts)}"
    for mine, its in zip(shown.parts, elements.parts, strict=True):
        found = unlike(mine, its)
        if found is not None:
            return found
    return None


def _probes(shown: Shown, elements: Elements) -> Iterator[int]:
    """Yield the elements, counted in C order, that are asked: the corners, and where something ends in a dimension."""
    total, last = prod(shown.shape), prod(shown.shape) - 1
    asked = {0, 1, 2, last, last - 1, last // 2, last // 3}
    for shape, cuts in ((shown.shape, _cuts(shown)), (elements.shape, _cuts_in(elements))):
        for dim, step in enumerate(contiguous_stride(shape)):
            size = shape[dim]
            for at in {1, size // 2, size - 1, *[near for cut in cuts.get(dim, ()) for near in (cut - 1, cut)]}:
                if 0 <= at < size:
                    asked |= {at * step, last - at * step, at * step + step - 1}
    yield from sorted([at for at in asked if 0 <= at < total])


def _cuts(shown: Shown) -> dict[int, list[int]]:
    """Return the indices along each dimension at which another range begins."""
    if isinstance(shown, Ranges):
        ends = list(accumulate([stop - start for _, start, stop in shown.order]))
        inner = [_cuts(part).get(shown.dim, []) for part in shown.parts]
        return {shown.dim: [*ends, *[each for some in inner for each in some]]}
    if isinstance(shown, Turned):
        inside = _cuts(shown.inner)
        return {to: inside[dim] for to, dim in enumerate(shown.dims) if dim in inside}
    return {}


def _cuts_in(elements: Elements) -> dict[int, list[int]]:
    if isinstance(elements, Joined):
        return {elements.dim: list(accumulate([part.shape[elements.dim] for part in elements.parts]))}
    return {}


def _index(at: int, shape: Shape) -> Index:
    """Return the index of the element number ``at`` in C order."""
    return tuple([at // step % size for size, step in zip(shape, contiguous_stride(shape), strict=True)])


def _number(index: Index, shape: Shape) -> int:
    return sum([at * step for at, step in zip(index, contiguous_stride(shape), strict=True)])


def _address(shown: Shown, index: Index) -> _Address:
    """Return which byte of what an index shows."""
    while True:
        if isinstance(shown, Window):
            at = shown.start + shown.width * sum([i * step for i, step in zip(index, shown.stride, strict=True)])
            holds = shown.store.holds
            if holds is None:
                return shown.store.noun.key, at
            index, shown = _index(at // shown.width, holds.shape), holds
        elif isinstance(shown, Inline):
            at = shown.width * sum([i * step for i, step in zip(index, shown.stride, strict=True)])
            return shown.data, shown.start + at
        elif isinstance(shown, Refolded):
            index, shown = _index(_number(index, shown.shape), shown.inner.shape), shown.inner
        elif isinstance(shown, Turned):
            places = dict(zip(shown.dims, index, strict=True))
            shown, index = shown.inner, tuple([places[dim] for dim in range(len(index))])
        elif isinstance(shown, Computed):
            return shown, _number(index, shown.shape)
        else:
            at = index[shown.dim]
            for number, start, stop in shown.order:
                if at < stop - start:
                    index = (*index[: shown.dim], start + at, *index[shown.dim + 1 :])
                    shown = shown.parts[number]
                    break
                at -= stop - start


def _address_in(elements: Elements, index: Index) -> _Address:
    """Return the same for what an edit was said to make."""
    while True:
        if isinstance(elements, View):
            at = elements.width * sum([i * step for i, step in zip(index, elements.stride, strict=True)])
            return (
                (elements.source, elements.start + at)
                if elements.held is None
                else (elements.held, elements.start + at)
            )
        if isinstance(elements, Reshaped):
            index, elements = _index(_number(index, elements.shape), elements.inner.shape), elements.inner
        elif isinstance(elements, Joined):
            at = index[elements.dim]
            for part in elements.parts:
                if at < part.shape[elements.dim]:
                    index = (*index[: elements.dim], at, *index[elements.dim + 1 :])
                    elements = part
                    break
                at -= part.shape[elements.dim]
        else:
            return elements, _number(index, elements.shape)


def _same(wanted: _Address, got: _Address) -> bool:
    one, other = wanted[0], got[0]
    if wanted[1] != got[1]:
        return False
    if isinstance(one, Computed):
        return isinstance(other, _COMPUTED) and _computed_unlike(one, other) is None
    if isinstance(one, (bytes, memoryview)):
        return isinstance(other, (bytes, memoryview)) and (one is other or bytes(one) == bytes(other))
    return one == other


def _told(address: _Address) -> str:
    thing, at = address
    return f"byte {at:,} of storage {thing}" if isinstance(thing, str) else f"element or byte {at:,} of what is made"
