"""The language of the filter: ``conv *.weight dtype:bf16 shape:*x768 >1MB finding:N401 !bias``.

Words between spaces, all of which must hold; ``!`` before one turns it round, quotes keep spaces together:

    conv               the name has this in it, whatever the case
    *.weight           the name is like this: * for anything, ? for one character, [01] for one of these
    dtype:bf16,f32     one of these dtypes, by any of their names
    shape:64x3x*       the dimensions, joined by x; "scalar" for none
    device:cuda        the device tag begins with this
    finding:N401       a finding of this code, family, name or severity speaks of it; * for any
    is:tied            another name of the same tensor is there: tied, parameter, empty, meta
    >1MB  <=4kB        bytes: B, kB, MB, GB, TB and KiB, MiB, GiB, TiB
    >1M  <1000  =1     elements: nothing, k, M, B
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate
from operator import eq, ge, gt, le, lt

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.errors import UsageError
from ckptdoctor.tui.models.marks import Marks
from ckptdoctor.tui.models.table import Rows, Table, as_rows

_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_SIZE = re.compile(r"(>=|<=|>|<|=)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([A-Za-z]*)")
_COMPARED = {">": gt, "<": lt, ">=": ge, "<=": le, "=": eq}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_ELEMENTS = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9, "G": 10**9}
_ALIASES = {"half": "float16", "fp16": "float16", "fp32": "float32", "float": "float32", "fp64": "float64"}
_ALIASES |= {"double": "float64", "long": "int64", "int": "int32", "fp8": "float8_e4m3fn"}
_FIELDS = ("dtype", "shape", "device", "finding", "is")
_STATES: dict[str, Callable[[Table, int], bool]] = {
    "tied": lambda table, row: bool(table.tied_to(row)),
    "parameter": lambda table, row: table.tensors[row].is_parameter,
    "empty": lambda table, row: table.elements[row] == 0,
    "meta": lambda table, row: table.tensors[row].device == "meta",
}

# from the rows that are left, those that hold
_Sieve = Callable[[Table, Marks, Rows], "list[int]"]


@dataclass(frozen=True, slots=True)
class Term:
    """One word of the filter: as it was written, and what it keeps. ``cost`` says which to try first."""

    text: str
    keeps: _Sieve
    negated: bool = False
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Query:
    """A filter that was understood."""

    terms: tuple[Term, ...]

    def rows(self, table: Table, marks: Marks) -> Rows | None:
        """The rows for which all words hold; None where nothing was asked."""
        if not self.terms:
            return None
        left: Rows = range(len(table))
        for term in sorted(self.terms, key=lambda term: term.cost):
            kept = term.keeps(table, marks, left)
            if term.negated:
                gone = set(kept)
                kept = [row for row in left if row not in gone]
            left = as_rows(kept)
        return left


def parse(text: str) -> Query:
    """What a filter asks for. Raises UsageError with a sentence for a word that makes no sense."""
    return Query(tuple(_terms(text)))


def _terms(text: str) -> Iterator[Term]:
    for match in _WORD.finditer(text):
        word = match[0]
        negated = word.startswith("!")
        bare = word[1:] if negated else word
        if bare.replace('"', ""):
            sieve, cost = _sieve(bare)
            yield Term(word, sieve, negated, cost)


def _sieve(word: str) -> tuple[_Sieve, int]:
    quoted = word.startswith('"')
    plain = word.replace('"', "")
    if quoted:
        return _named(plain), 2
    size = _SIZE.fullmatch(plain)
    if size is not None:
        return _sized(size[1], size[2], size[3]), 1
    if plain[0] in "<>=":
        raise UsageError(f"“{plain}” is no size: write >1MB for bytes, or >1M for elements.")
    field, colon, value = plain.partition(":")
    if colon and field.lower() in _FIELDS:
        return _field(field.lower(), value), 0
    if colon and field.isalpha() and get_close_matches(field.lower(), _FIELDS, 1, 0.7):
        (near,) = get_close_matches(field.lower(), _FIELDS, 1, 0.7)
        raise UsageError(f"“{field}:” is not known: did you mean {near}:?")
    if any(char in plain for char in "*?["):
        return _like(plain), 3
    return _named(plain), 2


def _field(field: str, value: str) -> _Sieve:
    if not value:
        raise UsageError(f"{field}: needs something behind it, such as {_EXAMPLES[field]}.")
    if field == "dtype":
        return _of_dtype(frozenset(map(_dtype, filter(None, value.split(",")))))
    if field == "shape":
        return _shaped(value)
    if field == "device":
        return _on_device(value.lower())
    if field == "finding":
        return _found(value)
    if value.lower() not in _STATES:
        raise UsageError(f"is:{value} is not known: there are {', '.join(f'is:{state}' for state in _STATES)}.")
    holds = _STATES[value.lower()]
    return lambda table, marks, rows: [row for row in rows if holds(table, row)]


_EXAMPLES = {
    "dtype": "dtype:bf16",
    "shape": "shape:64x3x*",
    "device": "device:cuda:0",
    "finding": "finding:N401",
    "is": "is:tied",
}


def _dtype(text: str) -> str:
    """The dtype that is meant. Raises UsageError when there is none of that name."""
    name = text.lower().removeprefix("torch.")
    for dtype in BY_NAME.values():
        if name in (dtype.name, dtype.short, (dtype.safetensors or "").lower()):
            return dtype.name
    if name in _ALIASES:
        return _ALIASES[name]
    near = get_close_matches(name, [*BY_NAME, *[each.short for each in BY_NAME.values()]], 1)
    raise UsageError(f"There is no dtype “{text}”{f': did you mean {near[0]}?' if near else '.'}")


def _named(text: str) -> _Sieve:
    needle = text.lower()

    def keeps(table: Table, marks: Marks, rows: Rows) -> list[int]:
        names = table.folded
        if len(rows) == len(names):
            return [row for row, name in enumerate(names) if needle in name]
        return [row for row in rows if needle in names[row]]

    return keeps


def _like(glob: str) -> _Sieve:
    """Names like a pattern: the whole of what is shown, or the key in its state dict."""
    match = re.compile(translate(glob.lower())).match

    def keeps(table: Table, marks: Marks, rows: Rows) -> list[int]:
        names = table.folded
        return [row for row in rows if match(names[row]) or match(names[row].rpartition("/")[2])]

    return keeps


def _sized(sign: str, number: str, unit: str) -> _Sieve:
    compare = _COMPARED[sign]
    of_bytes = unit.lower() in _BYTES and unit != "B"
    if not of_bytes and unit not in _ELEMENTS:
        raise UsageError(f"“{unit}” is no unit: kB, MB, GB for bytes; k, M, B for elements.")
    limit = float(number) * (_BYTES[unit.lower()] if of_bytes else _ELEMENTS[unit])

    def keeps(table: Table, marks: Marks, rows: Rows) -> list[int]:
        sizes = table.nbytes if of_bytes else table.elements
        return [row for row in rows if compare(sizes[row], limit)]

    return keeps


def _of_dtype(names: frozenset[str]) -> _Sieve:
    return _of_kind(lambda kind: kind[0] in names)


def _on_device(begin: str) -> _Sieve:
    return _of_kind(lambda kind: kind[1].lower().startswith(begin))


def _of_kind(wanted: Callable[[tuple[str, str]], bool]) -> _Sieve:
    def keeps(table: Table, marks: Marks, rows: Rows) -> list[int]:
        kinds = {number for number, kind in enumerate(table.kind_names) if wanted(kind)}
        return [row for row in rows if table.kinds[row] in kinds]

    return keeps


def _shaped(pattern: str) -> _Sieve:
    text = pattern.strip("[]()").replace(" ", "").replace(",", "x").lower()
    match = re.compile(translate("" if text == "scalar" else text)).match

    def keeps(table: Table, marks: Marks, rows: Rows) -> list[int]:
        known: dict[tuple[int, ...], bool] = {}
        return [row for row in rows if _fits(table.tensors[row], match, known)]

    return keeps


def _fits(tensor: Tensor, match: Callable[[str], object], known: dict[tuple[int, ...], bool]) -> bool:
    shape = tensor.shape
    if shape not in known:
        known[shape] = match("x".join(map(str, shape))) is not None
    return known[shape]


def _found(wanted: str) -> _Sieve:
    def keeps(table: Table, marks: Marks, rows: Rows) -> list[int]:
        found = marks.rows_of(wanted)
        return [row for row in rows if row in found]

    return keeps
