"""What a look at one tensor showed: a window of its values, statistics, extremes, and pictures of a slice."""

from __future__ import annotations

from typing import Union

from ckptdoctor.facts.values import TensorValues
from ckptdoctor.noun import noun

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
    """The values of one tensor in numbers, from ``looked`` of its ``total`` elements, evenly spread.

    ``bins`` are how many finite values lie in equal parts of the range from the least to the greatest; ``sizes`` how
    many lie in ``[2 ** (e - 1), 2 ** e)``, by exponent: negative ones, then positive ones. NaN comes first among
    extremes, then infinities. ``dimensions`` has the extremes along each dimension.
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
class Refused:
    """Values that cannot be looked at, and why."""

    reason: str
