"""Writes the values of a checkpoint as a table: outliers first, then one line a tensor, then the sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from statistics import median

from ckptdoctor.checkpoint import Tensor, show_path
from ckptdoctor.findings import Severity
from ckptdoctor.noun import noun
from ckptdoctor.rendering.contents import place
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.grouping import braced, pattern
from ckptdoctor.rendering.numbers import amount, count, plural, shape, size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.value_numbers import number, share, sparkline, totals
from ckptdoctor.rendering.wrapping import abridged, joined, wrapped
from ckptdoctor.values.statistics import TensorValues, Values
from ckptdoctor.wording import beyond

_KEY = 60  # characters of a key that are shown where there is room
_SHORT_KEY = 22  # and where there is not, once every other column is gone
_WIDE, _NARROW = 16, 8  # columns of a histogram

Cells = dict[str, str]

# what can be asked for; the greatest comes first
ORDERS: dict[str, Callable[[TensorValues], float]] = {
    "nan": lambda values: values.count - values.finite,
    "absmax": lambda values: values.absmax,
    "norm": lambda values: values.norm,
    "mean": lambda values: abs(values.mean),
    "std": lambda values: values.std,
    "zeros": lambda values: values.zeros / max(1, values.count),
    "size": lambda values: values.count,
}

_OF_STORED = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
_COLUMNS = ("shape", "dtype", "NaN/inf", "zeros", "min", "max", "mean", "std", "norm", "values")
_LEFT = ("key", "shape", "dtype", "values", "narrow")
_NAMES = {"narrow": "values"}
_DROPPED = ("dtype", "norm", "values", "shape", "mean", "zeros", "std", "narrow")  # in this order, where it is too wide
_GAP = 2


@noun
class _Row:
    """A tensor: how it is called below the heading of its group, its cells, or the reason why it has none."""

    group: str
    short: str
    full: str
    cells: Cells
    unread: str = ""


def table(values: Values, order: str | None, width: int | None, paint: Paint, plain: bool = False) -> str:
    """Return the whole text below the heading; ``plain`` where the output has no blocks to draw with."""
    read = [(tensor, found) for tensor in values.checkpoint.tensors if (found := values.of(tensor)) is not None]
    lines = [*_outliers(values, width, paint), *_rows(values, order, width, paint, plain), *_sums(values, width)]
    if not read and not values.skipped:
        lines.append("no values")
    return "\n".join(lines)


def _outliers(values: Values, width: int | None, paint: Paint) -> Iterator[str]:
    read = [(tensor, found) for tensor in values.checkpoint.tensors if (found := values.of(tensor)) is not None]
    lines = list(outliers(read))
    if not lines:
        return
    yield ""
    yield paint.strong("look here first")
    for each in lines:
        first, *rest = wrapped(f"{each.where} · {each.what}", width, "  ", "    ")
        severity = Severity.ERROR if each.grave else Severity.WARNING
        yield from [paint.severity(severity, line) for line in (first, *rest)]


def _rows(values: Values, order: str | None, width: int | None, paint: Paint, plain: bool) -> Iterator[str]:
    reasons = {each.path: each.reason for each in values.skipped}
    rows = [_row(tensor, values.of(tensor), reasons.get(tensor.path, ""), plain) for tensor in _ordered(values, order)]
    rows = [row for row in rows if row.cells or row.unread]
    if not rows:
        return
    if order is not None:
        rows = [_Row("", row.full, row.full, row.cells, row.unread) for row in rows]
    blocks = [list(each) for _, each in groupby(rows, key=lambda row: row.group)]
    headed = [_is_headed(block, width) for block in blocks]
    named = [
        (f"  {row.short}" if below else row.full, row)
        for block, below in zip(blocks, headed, strict=True)
        for row in block
    ]
    room = _fitted(named, width)
    yield ""
    yield paint.dim(_line({name: _NAMES.get(name, name) for name in room}, room))
    at = 0
    for block, below in zip(blocks, headed, strict=True):
        if below:
            yield paint.strong(abridged(block[0].group, width or 120))
        for key, row in named[at : at + len(block)]:
            yield _drawn(key, row, room, width, paint)
        at += len(block)


def _is_headed(rows: Sequence[_Row], width: int | None) -> bool:
    """Return whether tensors are listed below the name of their module: several, or one whose name would not fit."""
    long = width is not None and len(rows[0].full) > _SHORT_KEY
    return rows[0].group != "" and (len(rows) > 1 or long)


def _fitted(named: Sequence[tuple[str, _Row]], width: int | None) -> dict[str, int]:
    """Return the columns that there is room for, and how wide they are."""
    names = [name for name in _COLUMNS if any(row.cells.get(name) for _, row in named)]
    if len({row.cells["dtype"] for _, row in named if row.cells}) == 1:
        names.remove("dtype")  # the heading says it
    room = {name: max([len(name), *[len(row.cells.get(name, "")) for _, row in named]]) for name in names}
    longest = min(_KEY, max(len("key"), *[len(key) for key, _ in named]))
    for dropped in _DROPPED:
        if width is None or _sum(room) + min(longest, _SHORT_KEY) <= width:
            break
        if dropped in room:
            del room[dropped]
            if dropped == "values":
                room["narrow"] = _NARROW
    most = longest if width is None else max(_SHORT_KEY // 2, min(longest, width - _sum(room)))
    return {"key": most, **room}


def _sum(room: dict[str, int]) -> int:
    return sum(room.values()) + _GAP * len(room)


def _line(cells: Cells, room: dict[str, int]) -> str:
    gap = " " * _GAP
    fitted = [(name, cells.get(name, ""), wide) for name, wide in room.items()]
    return gap.join([text.ljust(wide) if name in _LEFT else text.rjust(wide) for name, text, wide in fitted]).rstrip()


def _drawn(key: str, row: _Row, room: dict[str, int], width: int | None, paint: Paint) -> str:
    key = abridged(key, room["key"])
    if row.unread:
        line = f"{key.ljust(room['key'])}  {row.unread}"
        return paint.dim(line if width is None else line[:width])
    line = _line({**row.cells, "key": key}, room)
    return paint.severity(Severity.ERROR, line) if row.cells["NaN/inf"] else line


def _ordered(values: Values, order: str | None) -> Sequence[Tensor]:
    tensors = values.checkpoint.tensors
    if order is None:
        return tensors
    rank = ORDERS[order]
    found = [(tensor, values.of(tensor)) for tensor in tensors]
    read = sorted([(-rank(each), at) for at, (_, each) in enumerate(found) if each is not None])
    return [*[tensors[at] for _, at in read], *[tensor for tensor, each in found if each is None]]


def _row(tensor: Tensor, found: TensorValues | None, reason: str, plain: bool) -> _Row:
    group, short = _split(tensor)
    full = place(tensor.path)
    if found is None:
        return _Row(group, short, full, {}, f"not read: {escape(reason)}" if reason else "")
    return _Row(group, short, full, _cells(tensor, found, plain))


def _split(tensor: Tensor) -> tuple[str, str]:
    """Return the block of layers that a tensor belongs to, and its name there: ``layers.0`` and ``attn.weight``."""
    above = show_path(tensor.path[:-1]) + "/" if len(tensor.path) > 1 else ""
    steps = tensor.key.split(".")
    first = next((at for at, step in enumerate(steps[:-1]) if step.isdigit()), len(steps) - 2)
    while first + 1 < len(steps) - 1 and steps[first + 1].isdigit():
        first += 1
    group = ".".join(steps[: first + 1])
    return escape(above + group).rstrip("/"), escape(".".join(steps[first + 1 :]))


def _cells(tensor: Tensor, found: TensorValues, plain: bool) -> Cells:
    bad = "/".join([count(found.nan), count(found.infinite)]) if found.finite < found.count else ""
    cells = {"shape": shape(tensor.shape), "dtype": tensor.dtype.name, "NaN/inf": bad}
    if not found.finite:
        return cells
    figures = ("min", "max", "mean", "std", "norm")
    return {
        **cells,
        "zeros": share(found.zeros, found.count),
        **{name: number(getattr(found, name)) for name in figures},
        "values": sparkline(found.histogram, _WIDE, plain),
        "narrow": sparkline(found.histogram, _NARROW, plain),
    }


def _sums(values: Values, width: int | None) -> Iterator[str]:
    """Yield a line for each dtype, then what was not looked at."""
    yield ""
    read = [(tensor.dtype.name, found) for tensor in values.checkpoint.tensors if (found := values.of(tensor))]
    for name, total in totals(read).items():
        pieces = [
            f"{name}: {plural(total.tensors, 'tensor')}",
            f"{amount(total.count)} {'value' if total.count == 1 else 'values'}",
        ]
        if total.nan or total.infinite:
            pieces.append(f"{count(total.nan)} NaN, {count(total.infinite)} infinite")
        if total.finite:
            pieces += [f"{number(total.min)} to {number(total.max)}", f"mean {number(total.mean)}"]
            pieces += [f"std {number(total.std)}", f"norm {number(total.norm)}"]
            pieces.append(f"zeros {share(total.zeros, total.count)}")
        yield from joined(pieces, width)
    left = len(values.checkpoint.tensors) - len(read) - len(values.skipped)
    said = [f"Read {size(values.read)}."]
    said += [f"The values of {plural(len(values.skipped), 'tensor')} were not read."] if values.skipped else []
    sparse = sum([tensor.layout in _OF_STORED for tensor in values.checkpoint.tensors if values.of(tensor)])
    if sparse:
        whose = (
            "1 sparse tensor are those of its" if sparse == 1 else f"{count(sparse)} sparse tensors are those of their"
        )
        said.append(f"The figures of {whose} stored values.")
    said += [f"Interrupted: {plural(left, 'tensor')} left."] if not values.complete else []
    yield from wrapped(" ".join(said), width, "")


# ---- which tensors somebody who looks for trouble wants to see first. What is said of them is counted, not guessed


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
    yield from _first(_far(read), "outliers among similar tensors")
    yield from _first(_zero(read), "groups that are all zero")


def _first(lines: Sequence[Outlier], what: str) -> Iterator[Outlier]:
    yield from lines[:_MOST]
    if len(lines) > _MOST:
        yield Outlier(beyond(len(lines) - _MOST, before=""), what, lines[0].grave)


def _not_finite(read: Sequence[Read]) -> list[Outlier]:
    sick = [(tensor, values) for tensor, values in read if values.finite < values.count]
    sick.sort(key=lambda each: each[1].finite / each[1].count)
    return [Outlier(place(tensor.path), _how_many(values), grave=True) for tensor, values in sick]


def _how_many(values: TensorValues) -> str:
    kinds = ((values.nan, "NaN"), (values.positive_inf, "inf"), (values.negative_inf, "-inf"))
    said = ", ".join([f"{count(many)} {name}" for many, name in kinds if many])
    return f"{said} of {plural(values.count, 'value')}"


def _far(read: Sequence[Read]) -> list[Outlier]:
    """Return tensors whose largest value is many times that of others whose names differ in numbers alone."""
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
    """Return the path that they have in common, with their numbers in braces: ``layers.{0..3}.bias``."""
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
    """Return the kind that layers of a stack share: the path without its numbers, and the dimensions."""
    return (*[_unnumbered(part) if isinstance(part, str) else "#" for part in tensor.path], len(tensor.shape))


def _unnumbered(text: str) -> str:
    return ".".join(["#" if step.isdigit() else step for step in text.split(".")])
