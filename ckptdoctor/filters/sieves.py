"""What the words of a filter keep: from the rows that are left, those that hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.filters.found import Found
from ckptdoctor.filters.table import Rows, Table

Sieve = Callable[[Table, Found, Rows], "list[int]"]

_STATES: dict[str, Callable[[Table, int], bool]] = {
    "tied": lambda table, row: bool(table.tied_to(row)),
    "parameter": lambda table, row: table.tensors[row].is_parameter,
    "empty": lambda table, row: table.elements[row] == 0,
    "meta": lambda table, row: table.tensors[row].device == "meta",
}
STATES = tuple(_STATES)


def named(text: str) -> Sieve:
    """Names that have this in them, whatever the case."""
    needle = text.lower()

    def keeps(table: Table, found: Found, rows: Rows) -> list[int]:
        names = table.folded
        if len(rows) == len(names):
            return [row for row, name in enumerate(names) if needle in name]
        return [row for row in rows if needle in names[row]]

    return keeps


def like(glob: str) -> Sieve:
    """Names like a pattern: the whole of what is shown, or the key in its state dict."""
    match = re.compile(translate(glob.lower())).match

    def keeps(table: Table, found: Found, rows: Rows) -> list[int]:
        names = table.folded
        return [row for row in rows if match(names[row]) or match(names[row].rpartition("/")[2])]

    return keeps


def sized(compare: Callable[[int, float], bool], limit: float, *, of_bytes: bool) -> Sieve:
    """As many bytes, or elements, as the comparison with a limit says."""

    def keeps(table: Table, found: Found, rows: Rows) -> list[int]:
        sizes = table.nbytes if of_bytes else table.elements
        return [row for row in rows if compare(sizes[row], limit)]

    return keeps


def of_dtype(names: frozenset[str]) -> Sieve:
    """One of these dtypes."""
    return _of_kind(lambda kind: kind[0] in names)


def on_device(begin: str) -> Sieve:
    """Device tags that begin so, in lower case."""
    return _of_kind(lambda kind: kind[1].lower().startswith(begin))


def _of_kind(wanted: Callable[[tuple[str, str]], bool]) -> Sieve:
    def keeps(table: Table, found: Found, rows: Rows) -> list[int]:
        kinds = {number for number, kind in enumerate(table.kind_names) if wanted(kind)}
        return [row for row in rows if table.kinds[row] in kinds]

    return keeps


def shaped(pattern: str) -> Sieve:
    """Dimensions like a pattern, joined by x."""
    text = pattern.strip("[]()").replace(" ", "").replace(",", "x").lower()
    match = re.compile(translate("" if text == "scalar" else text)).match

    def keeps(table: Table, found: Found, rows: Rows) -> list[int]:
        known: dict[tuple[int, ...], bool] = {}
        return [row for row in rows if _fits(table.tensors[row], match, known)]

    return keeps


def _fits(tensor: Tensor, match: Callable[[str], object], known: dict[tuple[int, ...], bool]) -> bool:
    shape = tensor.shape
    if shape not in known:
        known[shape] = match("x".join(map(str, shape))) is not None
    return known[shape]


def in_state(state: str) -> Sieve:
    """What one of ``STATES`` is true of."""
    holds = _STATES[state]
    return lambda table, found, rows: [row for row in rows if holds(table, row)]


def found_by(wanted: str) -> Sieve:
    """What findings of a code, a name or a severity speak of."""

    def keeps(table: Table, found: Found, rows: Rows) -> list[int]:
        kept = found.rows_of(wanted)
        return [row for row in rows if row in kept]

    return keeps
