"""Chooses the columns beside names in tree and list: which there is room for, and what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.report.escape import escape
from ckptdoctor.report.numbers import amount, count, plural, shape, size
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.tree import TreeBranch
from ckptdoctor.tui.widgets.line_view import fit, of_severity

_BADGE = 2
# the columns in the order in which they get room, with their cells, and where they stand
_ROOM = (("bytes", 10), ("shape", 17), ("dtype", 8), ("device", 9), ("elements", 9))
_SPARE = {"elements": 12}  # cells more that names want, before there is this as well: bytes tell much the same
_PLACES = ("shape", "dtype", "elements", "bytes", "device")

Pieces = Iterator[tuple[str, str]]


@lru_cache(maxsize=64)
def chosen(width: int, least: int) -> tuple[dict[str, int], int]:
    """The columns that fit into a line of ``width`` cells beside ``least`` for the name, and what is left for that."""
    left, found = width - _BADGE, {}
    for name, cells in _ROOM:
        if left - cells < least + _SPARE.get(name, 0):
            break
        found[name] = cells
        left -= cells
    return {name: found[name] for name in _PLACES if name in found}, left


def of_tensor(opened: OpenedCheckpoint, row: int, columns: dict[str, int]) -> Pieces:
    """The columns of a tensor."""
    tensor = opened.table.tensors[row]
    texts = {
        "shape": (shape(tensor.shape), "plain"),
        "dtype": (tensor.dtype.short, "plain"),
        "elements": (amount(opened.table.elements[row]), "dim"),
        "bytes": (size(opened.table.nbytes[row]), "plain"),
        "device": (escape(tensor.device), "dim"),
    }
    yield from _set(texts, columns)
    yield of_severity(opened.badges.worst(row))


def of_branch(opened: OpenedCheckpoint, branch: TreeBranch, columns: dict[str, int]) -> Pieces:
    """The columns of a level: sums, and the dtypes and devices that all its tensors have."""
    figures = opened.lines.tree.figures(branch)
    texts = {}
    if figures.tensors:
        kinds = opened.lines.tree.kinds(branch)
        counted = plural(figures.tensors, "tensor")
        if "elements" not in columns:
            counted = f"{count(figures.tensors)} · {amount(figures.elements)}"
        texts = {
            "shape": (counted, "plain"),
            "dtype": (_one([_short(name) for name, _ in kinds]), "dim"),
            "elements": (amount(figures.elements), "dim"),
            "bytes": (size(figures.nbytes), "plain"),
            "device": (_one([escape(device) for _, device in kinds]), "dim"),
        }
    yield from _set(texts, columns)
    yield of_severity(opened.badges.worst(branch))


def lent(pieces: Pieces, wanted: int) -> tuple[int, list[tuple[str, str]]]:
    """The cells that a long name may have of the blanks in front of the columns, and those that are left then."""
    (text, look), *others = pieces
    spare = max(0, min(wanted, len(text) - len(text.lstrip(" ")) - 2))
    return spare, [(text[spare:], look), *others]


def _set(texts: dict[str, tuple[str, str]], columns: dict[str, int]) -> Pieces:
    for name, cells in columns.items():
        text, look = texts.get(name, ("", "plain"))
        if name == "device":
            yield " " + fit(text, cells - 1), look
        else:
            yield " " + fit(text, cells - 1, right=True), look


def _short(name: str) -> str:
    return BY_NAME[name].short if name in BY_NAME else escape(name)


def _one(names: list[str]) -> str:
    """The name, or the first one and how many others there are."""
    different = list(dict.fromkeys(names))
    return different[0] + (f" +{len(different) - 1}" if len(different) > 1 else "")
