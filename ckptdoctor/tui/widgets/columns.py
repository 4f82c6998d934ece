"""Chooses the columns next to names in tree and list: which there is room for, and what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import isfinite

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import amount, count, plural, shape, size
from ckptdoctor.rendering.value_numbers import number, sparkline
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.tree import TreeBranch, TreeItem
from ckptdoctor.tui.widgets.line_view import PHONE, fit, of_severity

_BADGE = 2
_DIGITS = 7  # signs of a standard deviation that its column has room for
_MORE = 3  # cells of how many other devices there are
_LEFT = ("device", "values")  # columns that begin at the left
# the columns in the order in which they get room, with their cells, and where they stand
_ROOM = (("bytes", 10), ("shape", 17), ("dtype", 8), ("device", 9), ("elements", 9))
_SPARE = {"elements": 12}  # cells more that names want, before there is this as well: bytes tell much the same
# and once all values are read
_MEASURED = (
    ("shape", 17),
    ("std", 10),
    ("dtype", 7),
    ("values", 8),
    ("NaN", 9),
    ("range", 21),
    ("bytes", 10),
)
_PLACES = ("shape", "dtype", "elements", "std", "values", "range", "NaN", "bytes", "device")

Pieces = Iterator[tuple[str, str]]


def chosen(opened: OpenedCheckpoint, width: int, least: int) -> tuple[dict[str, int], int]:
    """Return the columns that fit into ``width`` cells next to ``least`` for the name, and what is left for that.

    Where values are measured, they have columns before what the headers say.
    """
    devices = {device for _, device in opened.table.kind_names}
    longest = 1 + max([len(escape(device)) for device in devices], default=0) + _MORE * (len(devices) > 1)
    return _chosen(width, least, bool(opened.values), longest)


@lru_cache(maxsize=64)
def _chosen(width: int, least: int, measured: bool, device: int) -> tuple[dict[str, int], int]:
    left, found = width - _BADGE, {}
    for name, most in _MEASURED if measured else _ROOM:
        cells = min(most, device) if name == "device" else most
        if left - cells < least + _SPARE.get(name, 0):
            break
        found[name] = cells
        left -= cells
    return {name: found[name] for name in _PLACES if name in found}, left


def marks(opened: OpenedCheckpoint, item: TreeItem) -> str:
    """Return the signs behind a name: ``=`` where tensors share its memory, ``★`` where it has a bookmark."""
    tied = " =" if isinstance(item, int) and opened.table.tied_to(item) else ""
    return f"{tied} ★" if opened.bookmarks and opened.name_of(item) in opened.bookmarks else tied


def of_tensor(opened: OpenedCheckpoint, row: int, columns: dict[str, int]) -> Pieces:
    """Yield the columns of a tensor."""
    tensor = opened.table.tensors[row]
    texts = {
        "shape": (shape(tensor.shape), "plain"),
        "dtype": (tensor.dtype.short, "plain"),
        "elements": (amount(opened.table.elements[row]), "dim"),
        "bytes": (size(opened.table.nbytes[row]), "plain"),
        "device": (escape(tensor.device), "dim"),
    }
    values = opened.values_of(row) if "std" in columns else None
    if values is not None:
        texts["std"] = (f"σ {_short_number(values.std)}" if values.finite else "", "plain")
        if "values" in columns:
            texts["values"] = (sparkline(values.histogram, columns["values"] - 2), "accent")
        texts["NaN"] = (f"{_short_count(values.nan)} NaN" if values.nan else "", "error")
        one = f"all {_number(values.min)}" if values.constant else ""
        ends = f"{_number(values.min)} … {_number(values.max)}" if values.finite else ""
        texts["range"] = (one or ends, "dim")
    yield from _set(texts, columns)
    yield of_severity(opened.badges.worst(row))


def of_branch(opened: OpenedCheckpoint, branch: TreeBranch, columns: dict[str, int]) -> Pieces:
    """Yield the columns of a level: sums, and the dtypes and devices that all its tensors have."""
    figures = opened.lines.tree.figures(branch)
    texts = {}
    if figures.tensors:
        kinds = opened.lines.tree.kinds(branch)
        counted = plural(figures.tensors, "tensor")
        if branch.blocks:
            counted = f"{count(len(branch.blocks))} × {count(len(branch.blocks[0].rows))}"
        elif "elements" not in columns:
            counted = f"{count(figures.tensors)} · {amount(figures.elements)}"
        texts = {
            "shape": (counted, "plain"),
            "dtype": (_one([_short(name) for name, _ in kinds]), "dim"),
            "elements": (amount(figures.elements), "dim"),
            "bytes": (size(figures.nbytes), "plain"),
            "device": (_one([escape(device) for _, device in kinds]), "dim"),
        }
        if "bytes" not in columns and "std" in columns:  # sizes stand where tensors have their values
            whole = opened.lines.tree.figures(opened.lines.tree.root).nbytes
            texts["std"] = texts["bytes"]
            texts["values"] = ("━" * max(1, (columns.get("values", 2) - 2) * figures.nbytes // max(1, whole)), "dim")
    yield from _set(texts, columns)
    yield of_severity(opened.badges.worst(branch))


def lent(pieces: Pieces, wanted: int, width: int) -> tuple[int, list[tuple[str, str]]]:
    """Return how many cells of the columns a long name may have, and what is left of the columns.

    They are the blank ones before the first column; on a phone names come first, and that column may go altogether.
    """
    (text, look), *others = pieces
    given = 0
    while width < PHONE and others and wanted > given + _blank(text):
        given += len(text)
        (text, look), *others = others
    spare = max(0, min(wanted - given, _blank(text)))
    return given + spare, [(text[spare:], look), *others]


def _blank(text: str) -> int:
    """Return how many cells at the beginning of a column are blank, without the two that keep it from the name."""
    return max(0, len(text) - len(text.lstrip(" ")) - 2)


def _set(texts: dict[str, tuple[str, str]], columns: dict[str, int]) -> Pieces:
    for name, cells in columns.items():
        text, look = texts.get(name, ("", "plain"))
        if name in _LEFT:
            yield " " + fit(text, cells - 1), look
        else:
            yield " " + fit(text, cells - 1, right=True), look


def _number(value: float) -> str:
    return number(value) if isfinite(value) else str(value)


def _short_number(value: float) -> str:
    """A number that its column has room for: a small one as a power of ten."""
    text = _number(value)
    if len(text) <= _DIGITS:
        return text
    head, _, exponent = f"{value:.1e}".partition("e")
    return f"{head}e{int(exponent)}"


def _short_count(value: int) -> str:
    return amount(value) if value > 9_999 else str(value)


def _short(name: str) -> str:
    return BY_NAME[name].short if name in BY_NAME else escape(name)


def _one(names: list[str]) -> str:
    """Return the name, or the first one and how many others there are."""
    different = list(dict.fromkeys(names))
    return different[0] + (f" +{len(different) - 1}" if len(different) > 1 else "")
