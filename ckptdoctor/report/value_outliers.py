"""Which tensors somebody who looks for trouble wants to see first. What is said of them is counted, not guessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from ckptdoctor.checkpoint import Tensor, show_path
from ckptdoctor.facts.values import TensorValues
from ckptdoctor.noun import noun
from ckptdoctor.report.abbreviating import braced, pattern
from ckptdoctor.report.contents import place
from ckptdoctor.report.escape import escape
from ckptdoctor.report.numbers import count, plural
from ckptdoctor.report.value_numbers import number
from ckptdoctor.report.wrapping import abridged

Read = tuple[Tensor, TensorValues]

_MOST = 8  # lines of one sort before the rest is counted
_KIN = 4  # tensors of one kind of which one can be told to stick out
_FAR = 10.0  # times the median of its kind


@noun
class Outlier:
    """One line: which tensors, what of them, and whether it is an error wherever it is."""

    where: str
    what: str
    grave: bool = False


def outliers(read: Sequence[Read]) -> Iterator[Outlier]:
    """Not finite, far from tensors of the same kind, all zero; the worst first."""
    yield from _first(_not_finite(read), "tensors with NaN or infinities")
    yield from _first(_far(read), "far from their kind")
    yield from _first(_zero(read), "kinds that are all zero")


def _first(lines: Sequence[Outlier], what: str) -> Iterator[Outlier]:
    yield from lines[:_MOST]
    if len(lines) > _MOST:
        yield Outlier(f"{count(len(lines) - _MOST)} more", what, lines[0].grave)


def _not_finite(read: Sequence[Read]) -> list[Outlier]:
    sick = [(tensor, values) for tensor, values in read if values.finite < values.count]
    sick.sort(key=lambda each: each[1].finite / each[1].count)
    return [Outlier(place(tensor.path), _how_many(values), grave=True) for tensor, values in sick]


def _how_many(values: TensorValues) -> str:
    kinds = ((values.nan, "NaN"), (values.positive_inf, "inf"), (values.negative_inf, "-inf"))
    said = ", ".join([f"{count(many)} {name}" for many, name in kinds if many])
    return f"{said} of {plural(values.count, 'value')}"


def _far(read: Sequence[Read]) -> list[Outlier]:
    """Tensors whose largest value is many times that of others whose names differ in numbers alone."""
    found: list[tuple[float, Outlier]] = []
    for kin in _kinds(read).values():
        usual = median([values.absmax for _, values in kin])
        if len(kin) < _KIN or not usual:
            continue
        for tensor, values in kin:
            if values.absmax >= _FAR * usual:
                times = values.absmax / usual
                what = (
                    f"absmax {number(values.absmax)}, {times:,.0f} times the median of {count(len(kin))} such tensors"
                )
                found.append((times, Outlier(place(tensor.path), what)))
    return [each for _, each in sorted(found, key=lambda pair: -pair[0])]


def _zero(read: Sequence[Read]) -> list[Outlier]:
    """Floats that are zero throughout, by kind: biases of a fresh model are many."""
    zero = [each for each in read if _is_zero(*each)]
    sizes = {kind: len(kin) for kind, kin in _kinds(read).items()}
    lines = []
    for kind, kin in _kinds(zero).items():
        where = place(kin[0][0].path) if len(kin) == 1 else _pattern([tensor for tensor, _ in kin])
        of = f", {len(kin)} of {sizes[kind]} such tensors" if sizes[kind] > 1 else ""
        lines.append(Outlier(where, f"all zero{of}"))
    return lines


def _is_zero(tensor: Tensor, values: TensorValues) -> bool:
    return tensor.dtype.kind == "float" and values.zeros == values.count > 1


def _pattern(tensors: Sequence[Tensor]) -> str:
    """The path that they have in common, with their numbers in braces: ``layers.{0..3}.bias``."""
    steps = [show_path(tensor.path).split(".") for tensor in tensors]
    if len({len(each) for each in steps}) > 1:
        return abridged(escape(pattern([show_path(tensor.path) for tensor in tensors])))
    return abridged(escape(".".join([braced(list(dict.fromkeys(each))) for each in zip(*steps, strict=True)])))


def _kinds(read: Sequence[Read]) -> dict[object, list[Read]]:
    kinds: dict[object, list[Read]] = {}
    for each in read:
        kinds.setdefault(_kind(each[0]), []).append(each)
    return kinds


def _kind(tensor: Tensor) -> tuple[object, ...]:
    """What is the same for the layers of a stack: the path without its numbers, and the dimensions."""
    return (*[_unnumbered(part) if isinstance(part, str) else "#" for part in tensor.path], len(tensor.shape))


def _unnumbered(text: str) -> str:
    return ".".join(["#" if step.isdigit() else step for step in text.split(".")])
