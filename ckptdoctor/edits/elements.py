"""Describes the elements that edits make: views of runs of bytes, several put together, and computed ones.

The writers make bytes of it, and the proof of a repair compares the output with it, each in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Protocol, Union

from ckptdoctor.checkpoint import Storage
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import field, noun, replace

Shape = tuple[int, ...]


class Sliced(Protocol):
    """Bytes that are read when they are asked for."""

    def __getitem__(self, place: slice, /) -> bytes:
        """Return the bytes from ``place.start`` up to ``place.stop``."""


@noun
class View:
    """Elements of ``width`` bytes of the storage ``source``, the first at byte ``start``; strides count elements.

    ``held`` are the bytes of the source where they are in no file, or in another one than the original.
    """

    source: str
    start: int
    width: int
    shape: Shape
    stride: Shape
    held: bytes | memoryview | Sliced | None = field(default=None, compare=False, repr=False)

    @property
    def contiguous(self) -> bool:
        """Whether the elements are in C order without gaps."""
        steps = zip(self.shape, self.stride, contiguous_stride(self.shape), strict=True)
        return 0 in self.shape or all(size == 1 or have == want for size, have, want in steps)


@noun
class Joined:
    """Parts of equal sizes but along ``dim``, one after another along it, as ``torch.cat`` puts them."""

    parts: tuple[Elements, ...]
    dim: int
    shape: Shape


@noun
class Reshaped:
    """The same elements in C order under a shape that ``inner`` cannot have as a view."""

    inner: Elements
    shape: Shape


@noun
class Normed:
    """The plain weights that a norm computes of its parts, as ``edits.kinds.FuseNorm`` says; ``dtype`` is theirs."""

    norm: str
    parts: tuple[Elements, ...]
    dim: int | None
    dtype: str
    shape: Shape


@noun
class Dequantized:
    """The plain weights that quantised parts stand for, as ``edits.kinds.Dequantize`` says; ``kinds`` are their dtypes.

    ``runs`` says whose scale is whose: (rows, columns, rows of a block, columns of a block), in C order.
    """

    scheme: str
    parts: tuple[Elements, ...]
    kinds: tuple[str, ...]
    runs: tuple[int, int, int, int]
    affine: tuple[float, float]
    dtype: str
    width: int
    shape: Shape


@noun
class Calculated:
    """What is computed of the parts by a form of ``edits.computing``; ``kinds`` are the dtypes that the edit took."""

    form: str
    parts: tuple[Elements, ...]
    kinds: tuple[str, ...]
    numbers: tuple[float, ...]
    dtype: str
    width: int
    shape: Shape


@noun
class Converted:
    """The one part, of the dtype ``kind``, cast to ``dtype``; ``exact``: every value stays what it is."""

    parts: tuple[Elements]
    kind: str
    dtype: str
    width: int
    shape: Shape
    exact: bool = False


@noun
class Scattered:
    """The dense tensor of a sparse one: zeros, and values where the indices say.

    ``parts`` are the indices as torch keeps them for this ``layout``, whose dtypes are ``kinds``, and last the values.
    """

    layout: str
    parts: tuple[Elements, ...]
    kinds: tuple[str, ...]
    width: int
    shape: Shape


Elements = Union[View, Joined, Reshaped, Normed, Dequantized, Calculated, Converted, Scattered]
_COMPUTED = (Normed, Dequantized, Calculated, Converted, Scattered)
_NOTHING = View("", 0, 1, (0,), (1,))


@noun
class NewStorage(Storage):
    """A storage that is in no file yet: it ``holds`` elements of storages that are, which ``of`` has by their keys."""

    holds: Elements = field(default=_NOTHING, compare=False, repr=False)
    of: Mapping[str, Storage] = field(default_factory=dict, compare=False, repr=False)


def nbytes(elements: Elements) -> int:
    """Return how many bytes the elements take."""
    return prod(elements.shape) * width_of(elements)


def width_of(elements: Elements) -> int:
    """Return how many bytes one element takes."""
    while not isinstance(elements, (View, Dequantized, Calculated, Converted, Scattered)):
        elements = elements.inner if isinstance(elements, Reshaped) else elements.parts[0]
    return elements.width


def views(elements: Elements) -> Iterator[View]:
    """Yield every view that the elements are made of, in order."""
    stack = [elements]
    while stack:
        found = stack.pop()
        if isinstance(found, View):
            yield found
        else:
            stack += [found.inner] if isinstance(found, Reshaped) else reversed(found.parts)


def of_ranges(view: View, ranges: Sequence[tuple[int, int]]) -> Elements:
    """Return the elements of a view without gaps, which are in these ranges (first byte, length) of its source."""
    parts = [replace(view, start=start, shape=(length // view.width,), stride=(1,)) for start, length in ranges]
    return reshaped(joined(parts, 0), view.shape)


def joined(parts: Sequence[Elements], dim: int) -> Elements:
    """Return the parts one after another along ``dim``.

    Parts that continue each other in one storage become one view.
    """
    flat = [each for part in parts for each in (part.parts if _is_joined(part, dim) else (part,))]  # type: ignore[union-attr]  # _is_joined tells
    made: list[Elements] = []
    for part in flat:
        if part.shape[dim] == 0:
            continue
        last = made[-1] if made else None
        if isinstance(last, View) and isinstance(part, View) and _continues(last, part, dim):
            made[-1] = replace(last, shape=_with(last.shape, dim, last.shape[dim] + part.shape[dim]))
        else:
            made.append(part)
    if len(made) < 2:
        return made[0] if made else flat[0]
    if any(isinstance(part, (Reshaped, *_COMPUTED)) for part in made) and prod(made[0].shape[:dim]) != 1:
        raise _twice()
    return Joined(tuple(made), dim, _with(made[0].shape, dim, sum(part.shape[dim] for part in made)))


def _is_joined(elements: Elements, dim: int) -> bool:
    return isinstance(elements, Joined) and elements.dim == dim


def _continues(one: View, other: View, dim: int) -> bool:
    same = (one.source, one.width, one.stride) == (other.source, other.width, other.stride)
    return same and other.start == one.start + one.shape[dim] * one.stride[dim] * one.width


def _with(shape: Shape, dim: int, size: int) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])


def permuted(elements: Elements, dims: Sequence[int]) -> Elements:
    """Return the elements with their dimensions in another order, as ``Tensor.permute`` gives."""
    if list(dims) == list(range(len(elements.shape))):
        return elements
    if isinstance(elements, View):
        shape, stride = (tuple([numbers[dim] for dim in dims]) for numbers in (elements.shape, elements.stride))
        return replace(elements, shape=shape, stride=stride)
    if isinstance(elements, (Reshaped, *_COMPUTED)):
        raise _twice()
    parts = tuple([permuted(part, dims) for part in elements.parts])
    return Joined(parts, list(dims).index(elements.dim), tuple([elements.shape[dim] for dim in dims]))


def narrowed(elements: Elements, dim: int, start: int, stop: int) -> Elements:
    """Return the indices from ``start`` up to ``stop`` along ``dim``, as ``Tensor.narrow`` gives."""
    if (start, stop) == (0, elements.shape[dim]):
        return elements
    if isinstance(elements, View):
        first = elements.start + start * elements.stride[dim] * elements.width
        return replace(elements, start=first, shape=_with(elements.shape, dim, stop - start))
    if isinstance(elements, (Reshaped, *_COMPUTED)):
        raise _twice()
    if dim != elements.dim:
        parts = tuple([narrowed(part, dim, start, stop) for part in elements.parts])
        return replace(elements, parts=parts, shape=_with(elements.shape, dim, stop - start))
    return joined(list(_cut(elements.parts, dim, start, stop)), dim)


def _cut(parts: tuple[Elements, ...], dim: int, start: int, stop: int) -> Iterator[Elements]:
    passed = 0
    for part in parts:
        size = part.shape[dim]
        first, last = max(start - passed, 0), min(stop - passed, size)
        if first < last or part is parts[-1]:
            yield narrowed(part, dim, min(first, size), max(min(first, size), last))
        passed += size


def reshaped(elements: Elements, shape: Shape) -> Elements:
    """Return the same elements in C order under another shape; ``shape`` has as many."""
    if shape == elements.shape:
        return elements
    if isinstance(elements, View):
        stride = _stride(elements, shape)
        return Reshaped(elements, shape) if stride is None else replace(elements, shape=shape, stride=stride)
    if isinstance(elements, Joined):
        dim = _outermost(elements, shape) if prod(elements.shape[: elements.dim]) == 1 else _unit(elements, shape)
        if dim is not None:
            inner = prod(shape[:dim]) * prod(shape[dim + 1 :])
            parts = [reshaped(part, _with(shape, dim, prod(part.shape) // inner)) for part in elements.parts]
            return Joined(tuple(parts), dim, shape)
    return reshaped(elements.inner, shape) if isinstance(elements, Reshaped) else Reshaped(elements, shape)


def seen(holds: Elements, offset: int, shape: Shape, stride: Shape) -> Elements | None:
    """Return what a view with elements of the same width shows of a storage that holds these in C order.

    None where that cannot be said in terms of what they are made of: it is cut out of all of them.
    """
    flat = View("", 0, 1, shape, stride).contiguous
    if flat and not offset and prod(shape) == prod(holds.shape):
        return reshaped(holds, shape)
    if isinstance(holds, View) and holds.contiguous:
        return replace(holds, start=holds.start + offset * holds.width, shape=shape, stride=stride)
    if isinstance(holds, Converted):  # each number by itself
        part = seen(holds.parts[0], offset, shape, stride)
        return None if part is None else replace(holds, parts=(part,), shape=shape)
    return None


def _outermost(elements: Joined, shape: Shape) -> int | None:
    """Return the dimension along which parts follow one another that did so in C order."""
    dim = next((dim for dim, size in enumerate(shape) if size != 1), None)
    if dim is None or any(prod(part.shape) % max(1, prod(shape[dim + 1 :])) for part in elements.parts):
        return None
    return dim


def _unit(elements: Joined, shape: Shape) -> int | None:
    """Return the dimension of the parts where ``shape`` differs from the old one only by dimensions of size 1."""
    wide = [size for size in elements.shape if size != 1]
    places = [dim for dim, size in enumerate(shape) if size != 1]
    if wide != [shape[dim] for dim in places] or elements.shape[elements.dim] == 1:
        return None
    return places[sum(size != 1 for size in elements.shape[: elements.dim])]


def _stride(view: View, shape: Shape) -> Shape | None:
    """Return strides for the same elements under another shape.

    It is None where there are none (``computeStride`` of ATen).
    """
    if view.contiguous:
        return contiguous_stride(shape)
    runs: list[tuple[int, int]] = []  # (elements, step), neighbours joined that lie one after another
    for size, step in zip(view.shape, view.stride, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * step:
            runs[-1] = (runs[-1][0] * size, step)
        else:
            runs.append((size, step))
    made: list[int] = []
    for size in reversed(shape):
        if size == 1:
            made.append(1)
        elif not runs or runs[-1][0] % size:
            return None
        else:
            count, step = runs.pop()
            made.append(step)
            if count != size:
                runs.append((count // size, step * size))
    return tuple(reversed(made))


def _twice() -> RefusedError:
    return RefusedError(
        "A tensor is computed or gets a shape that no view can have; apply the following edits separately."
    )


def is_computed(elements: Elements) -> bool:
    """Return whether any of the elements are computed, and not only put in order."""
    if isinstance(elements, (View, *_COMPUTED)):
        return not isinstance(elements, View)
    return is_computed(elements.inner) if isinstance(elements, Reshaped) else any(map(is_computed, elements.parts))
