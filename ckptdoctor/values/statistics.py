"""Holds values as reading them showed: plain numbers, tensor by tensor, so that rules need no torch.

Those that count are of weights, without what holds odd numbers by its nature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Union

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Role, StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts.weight_sets import may_train, weight_sets
from ckptdoctor.noun import noun


@noun
class Histogram:
    """How many values are between two neighbouring ``edges``; ``sampled``: among evenly spaced values only.

    ``exponents`` counts the nonzero values whose magnitude is in ``[2 ** (e - 1), 2 ** e)``, by ``e``.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    sampled: bool
    exponents: tuple[tuple[int, int], ...] = ()


@noun
class TensorValues:
    """The values of one tensor in numbers; a complex number counts as two, quantized values are what they stand for.

    ``min``, ``max``, ``mean``, ``std`` (of the population), ``absmax`` and ``norm`` (L2) are those of the finite
    values, 0 where there are none. Counts and extremes are exact: those of integers beyond 2**53 as far as float64 is.
    Sums are not: against float64, the mean is within 2e-6 of the root mean square (1e-12 for float64, wide integers
    and float8), norm and std within 1e-4 of themselves (1e-9; std besides within 1e-9 of the root mean square), if no
    square leaves the range of float64: beyond 1e154 norm and std are infinite. ``fits`` are the narrower
    dtypes that hold every value exactly. ``duplicated_rows`` counts the rows that repeat an earlier one; None: that
    was not looked at, as the tensor is large or has no rows.

    Where values are read for the rules of ckptdoctor alone, nothing is added up: ``mean``, ``std`` and ``norm`` are NaN
    then, ``duplicated_rows`` is None, ``zeros`` is all of them or 0, ``fits`` is empty for floats of 16 bits, and there
    is a ``histogram`` only of values beyond 2**20, or that reach about as far below zero as above.
    """

    count: int
    nan: int = 0
    positive_inf: int = 0
    negative_inf: int = 0
    zeros: int = 0
    min: float = 0.0
    max: float = 0.0
    mean: float = 0.0
    std: float = 0.0
    absmax: float = 0.0
    norm: float = 0.0
    fits: tuple[str, ...] = ()
    histogram: Histogram | None = None
    duplicated_rows: int | None = None

    @property
    def infinite(self) -> int:
        """Infinities of either sign."""
        return self.positive_inf + self.negative_inf

    @property
    def finite(self) -> int:
        """Values that are neither NaN nor infinite."""
        return self.count - self.nan - self.infinite

    @property
    def constant(self) -> bool:
        """Whether every value is the same finite number."""
        return self.finite == self.count > 0 and self.min == self.max


@noun
class Unread:
    """A tensor whose values were not examined, or whose indices are wrong; and why."""

    path: KeyPath
    reason: str


@noun
class Values:
    """What the values of a checkpoint's tensors are. Tensors that are one (tied) share one ``TensorValues``.

    ``read`` counts the bytes; ``complete`` is false where the examination was stopped. ``stray`` are sparse tensors
    whose indices do not fit them.
    """

    checkpoint: Checkpoint
    tensors: Mapping[KeyPath, TensorValues]
    skipped: tuple[Unread, ...] = ()
    read: int = 0
    complete: bool = True
    stray: tuple[Unread, ...] = ()

    def of(self, tensor: Tensor) -> TensorValues | None:
        """Return the values of a tensor; None where they were not read."""
        return self.tensors.get(tensor.path)


# ---- what a look at one tensor showed


Number = Union[float, int, bool, complex]


@noun
class Window:
    """Some values of a tensor: of each dimension the indexes in ``box``; ``values`` are in C order."""

    box: tuple[range, ...]
    values: tuple[Number, ...]


@noun
class Extreme:
    """A value far out, at these indexes; ``size`` is its absolute value."""

    at: tuple[int, ...]
    value: Number
    size: float


@noun
class Extremes:
    """The indexes of one dimension by the largest absolute value in each; ``usual`` is the median of those."""

    worst: tuple[Extreme, ...]
    usual: float


@noun
class Look:
    """The values of one tensor in figures, from ``looked`` of its ``total`` elements, evenly spread.

    ``bins`` count the finite values in equal parts of the range from the smallest to the largest; ``sizes`` count those
    with a magnitude in ``[2 ** (e - 1), 2 ** e)``, by exponent: negative values, then positive ones. NaN comes first
    among extremes, then infinities. ``dimensions`` has the extremes along each dimension.
    """

    looked: int
    total: int
    values: TensorValues
    bins: tuple[int, ...] = ()
    sizes: tuple[tuple[int, int, int], ...] = ()
    extremes: tuple[Extreme, ...] = ()
    dimensions: tuple[Extremes, ...] = ()
    floating: bool = True

    @property
    def sampled(self) -> bool:
        """Whether only some of the elements were looked at."""
        return self.looked < self.total


@noun
class Picture:
    """A slice of two dimensions as ``cells``, row by row; None where there is nothing.

    Each cell stands for about ``down`` times ``across`` elements, put together as ``how`` says ("mean", "absmax").
    ``sampled``: it was made of some of the rows and columns only.
    """

    cells: tuple[tuple[float | None, ...], ...]
    down: float
    across: float
    how: str
    sampled: bool = False


@noun
class Spectrum:
    """The singular values of a matrix, largest first. ``rank`` counts those that are more than rounding.

    ``effective`` is the exponential of their entropy: the number of equal ones that would say as much.
    """

    values: tuple[float, ...]
    rows: int
    columns: int
    rank: int
    effective: float


# attention masks hold minus infinity; observers, metrics and ranges begin with infinite bounds, or have none
_MAY_BE_INFINITE = frozenset(
    [
        "mask",
        "masks",
        "min",
        "max",
        "minimum",
        "maximum",
        "low",
        "high",
        "lower",
        "upper",
        "bound",
        "bounds",
        "limit",
        "limits",
        "range",
        "clip",
        "best",
        "inf",
    ]
)
_WORD = re.compile(r"[a-z]+")
_MATRIX = 2  # dimensions of the weights of linear layers and embeddings; convolutions have more


@noun
class Read:
    """A tensor of some weights, with its values."""

    weights: StateDict
    tensor: Tensor
    values: TensorValues

    @property
    def leaf(self) -> str:
        """The last token of its key."""
        return self.tensor.key.rpartition(".")[2]

    @property
    def is_matrix(self) -> bool:
        """Whether it looks like the weight of a layer: two dimensions or more, floats, and a name that says so."""
        named = "weight" in self.leaf or self.leaf == "kernel"
        return named and len(self.tensor.shape) >= _MATRIX and may_train(self.tensor.key, self.tensor.dtype)


@cached_by_identity
def weights_read(values: Values) -> tuple[Read, ...]:
    """Return all weights in the file that were read and hold something, in file order, tied ones once."""
    return tuple(_weights_read(values))


def _weights_read(values: Values) -> Iterator[Read]:
    seen: set[int] = set()
    for state_dict in weight_sets(values.checkpoint):
        for tensor in state_dict.tensors:
            found = values.of(tensor)
            if found is not None and found.count and id(found) not in seen:
                seen.add(id(found))
                yield Read(state_dict, tensor, found)


def not_finite(values: Values, role: Role | None = None) -> list[tuple[Tensor, TensorValues]]:
    """Return the tensors of state dicts with NaN or infinities that do not belong there, in file order.

    Of optimizers with ``role``; of all others, those outside of every state dict aside, without.
    """
    found = []
    seen: set[int] = set()
    for state_dict in values.checkpoint.state_dicts:
        if (state_dict.role is Role.OPTIMIZER) is not (role is Role.OPTIMIZER) or state_dict.role is Role.RNG:
            continue
        for tensor in state_dict.tensors:
            read = values.of(tensor)
            if read is None or id(tensor) in seen:
                continue
            seen.add(id(tensor))
            if read.nan or (read.infinite and not may_be_infinite(tensor)):
                found.append((tensor, read))
    return found


def may_be_infinite(tensor: Tensor) -> bool:
    """Return whether its name or dtype is that of a tensor that holds infinities by its nature."""
    if tensor.path[:1] == ("callbacks",):  # the scores of Lightning's callbacks, before there is one
        return True
    leaf = tensor.key.rpartition(".")[2].lower()
    words = _WORD.findall(leaf)
    named = "mask" in leaf or not _MAY_BE_INFINITE.isdisjoint(words)
    return (named and words[-1] not in ("weight", "bias")) or tensor.dtype.name == "bool"
