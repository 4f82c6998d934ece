"""Understands filters: ``conv *.weight dtype:bf16 shape:*x768 >1MB finding:N401 !bias``; ``words`` explains them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from fnmatch import translate
from operator import eq, ge, gt, le, lt

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.errors import UsageError
from ckptdoctor.filters.found import FoundRows
from ckptdoctor.filters.table import Rows, Table, as_rows
from ckptdoctor.noun import noun
from ckptdoctor.wording import did_you_mean

_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_SIZE = re.compile(r"(>=|<=|>|<|=)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([A-Za-z]*)")
_SIZE_FIELD = re.compile(r"([A-Za-z_]+):?((?:>=|<=|>|<|=).*)")  # people write size>1MB as well
_SIZES = ("bytes", "elements", "nbytes", "numel", "parameters", "params")  # and these, which say which of the two
_SHAPE = re.compile(r"(?:[0-9*?x]|\[!?[0-9-]+\])*")
_COMPARED = {">": gt, "<": lt, ">=": ge, "<=": le, "=": eq}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_ELEMENTS = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9, "G": 10**9}
_ALIASES = {"half": "float16", "fp16": "float16", "fp32": "float32", "float": "float32", "fp64": "float64"}
_ALIASES |= {"double": "float64", "long": "int64", "int": "int32", "fp8": "float8_e4m3fn"}
_EXAMPLES = {
    "dtype": "dtype:bf16",
    "shape": "shape:64x3x*",
    "device": "device:cuda:0",
    "finding": "finding:N401",
    "is": "is:tied",
}


@noun
class Term:
    """One word of the filter: as it was written, and what it keeps. ``cost`` says which to try first.

    ``finding`` says whether it asks what was found.
    """

    text: str
    keeps: Sieve
    negated: bool = False
    cost: int = 0
    finding: bool = False


@noun
class Query:
    """A filter that was understood."""

    terms: tuple[Term, ...]

    @property
    def asks_findings(self) -> bool:
        """Whether a word asks what was found, so that nobody can answer who has not examined the file."""
        return any(term.finding for term in self.terms)

    def rows(self, table: Table, found: FoundRows) -> Rows | None:
        """Return the rows for which all words hold, or None where nothing was asked."""
        if not self.terms:
            return None
        left: Rows = range(len(table))
        for term in sorted(self.terms, key=lambda term: term.cost):
            kept = term.keeps(table, found, left)
            if term.negated:
                gone = set(kept)
                kept = [row for row in left if row not in gone]
            left = as_rows(kept)
        return left


def parse(text: str) -> Query:
    """Return the query for the text of a filter. Raises UsageError with a sentence for an invalid word."""
    return Query(tuple(_terms(text)))


def _terms(text: str) -> Iterator[Term]:
    for match in _WORD.finditer(text):
        word = match[0]
        negated = word.startswith("!")
        bare = word[1:] if negated else word
        if bare.replace('"', ""):
            sieve, cost = _sieve(bare)
            yield Term(word, sieve, negated, cost, _asked(bare)[0] == "finding")


def _asked(word: str) -> tuple[str, str]:
    """Return the field that a word names, and what follows its colon; ("", "") where it does not name one."""
    field, colon, value = word.replace('"', "").partition(":")
    known = colon and not word.startswith('"') and field.lower() in _EXAMPLES
    return (field.lower(), value) if known else ("", "")


def _sieve(word: str) -> tuple[Sieve, int]:
    plain = word.replace('"', "")
    if word.startswith('"'):
        return named(plain), 2
    comparison = _of_size(plain)
    size = _SIZE.fullmatch(comparison)
    if size is not None:
        return _sized(size[1], size[2], size[3]), 1
    if comparison:
        raise UsageError(f'"{plain}" is not a size. {_HOW_LARGE}')
    field, value = _asked(word)
    if field:
        return _field(field, value), 0
    _require_field(plain)
    if any(char in plain for char in "*?["):
        return like(plain), 3
    return named(plain), 2


_HOW_LARGE = "Use >1MB for bytes, or >1M for elements."


def _of_size(word: str) -> str:
    """Return what a word compares sizes with, from its sign on: of >1MB or size>1MB; "" where it is another word.

    Raises UsageError where another field was meant, or its name is misspelt.
    """
    if word[0] in "<>=":
        return word
    field, colon, value = word.partition(":")
    if field.lower() == "size" and colon and value[:1] not in ("<", ">", "="):
        raise UsageError(f'"{word}" compares nothing. {_HOW_LARGE}')
    written = _SIZE_FIELD.fullmatch(word)
    if written is None:
        return ""
    name, comparison = written[1].lower(), written[2]
    if name == "size":
        return comparison
    if name in _EXAMPLES:
        raise UsageError(f"{name} needs a colon, such as {_EXAMPLES[name]}.")
    if name in _SIZES or get_close_matches(name, ("size", *_SIZES), 1, 0.7):
        raise UsageError(f'Unknown filter "{written[1]}". {_HOW_LARGE}')
    return ""


def _require_field(word: str) -> None:
    """Raise UsageError where a field was meant and misspelt."""
    field, colon, _ = word.partition(":")
    near = get_close_matches(field.lower(), _EXAMPLES, 1, 0.7) if colon and field.isalpha() else []
    if near:
        raise UsageError(f'Unknown filter "{field}:". Did you mean "{near[0]}:"?')


def _field(field: str, value: str) -> Sieve:
    if not value:
        raise UsageError(f"{field}: needs a value, such as {_EXAMPLES[field]}.")
    if field == "dtype":
        return of_dtype(frozenset(map(_dtype, filter(None, value.split(",")))))
    if field == "shape":
        return shaped(value)
    if field == "device":
        if value.lower() == "gpu":
            raise UsageError('"gpu" is not a device of PyTorch. Use device:cuda.')
        return on_device(value.lower())
    if field == "finding":
        return found_by(value)
    if value.lower() not in STATES:
        known = ", ".join([f"is:{state}" for state in STATES])
        raise UsageError(f'Unknown filter "is:{value}". Use one of {known}.{did_you_mean(value, STATES)}')
    return in_state(value.lower())


def _dtype(text: str) -> str:
    """Return the dtype that is meant. Raises UsageError when there is none of that name."""
    name = text.lower().removeprefix("torch.")
    for dtype in BY_NAME.values():
        if name in (dtype.name, dtype.short, (dtype.safetensors or "").lower()):
            return dtype.name
    if name in _ALIASES:
        return _ALIASES[name]
    offer = did_you_mean(name, [*BY_NAME, *[each.short for each in BY_NAME.values()]])
    offer = offer or " Use a name such as float32, bf16 or i64."
    raise UsageError(f'Unknown dtype "{text}".{offer}')


def _sized(sign: str, number: str, unit: str) -> Sieve:
    of_bytes = unit.lower() in _BYTES and unit != "B"
    if not of_bytes and unit not in _ELEMENTS:
        raise UsageError(f'"{unit}" is not a unit. Use kB, MB, GB for bytes; k, M, B for elements.')
    limit = float(number) * (_BYTES[unit.lower()] if of_bytes else _ELEMENTS[unit])
    return sized(_COMPARED[sign], limit, of_bytes=of_bytes)


Sieve = Callable[[Table, FoundRows, Rows], "list[int]"]

_STATES: dict[str, Callable[[Table, int], bool]] = {
    "tied": lambda table, row: bool(table.tied_to(row)),
    "parameter": lambda table, row: table.tensors[row].is_parameter,
    "empty": lambda table, row: table.elements[row] == 0,
    "meta": lambda table, row: table.tensors[row].device == "meta",
}
STATES = tuple(_STATES)


def named(text: str) -> Sieve:
    """Return names that have this in them, whatever the case."""
    needle = text.lower()

    def keeps(table: Table, found: FoundRows, rows: Rows) -> list[int]:
        names = table.folded
        if len(rows) == len(names):
            return [row for row, name in enumerate(names) if needle in name]
        return [row for row in rows if needle in names[row]]

    return keeps


def like(glob: str) -> Sieve:
    """Return names like a pattern: the whole of what is shown, or the key in its state dict."""
    match = re.compile(translate(glob.lower())).match

    def keeps(table: Table, found: FoundRows, rows: Rows) -> list[int]:
        names = table.folded
        return [row for row in rows if match(names[row]) or match(names[row].rpartition("/")[2])]

    return keeps


def sized(compare: Callable[[int, float], bool], limit: float, *, of_bytes: bool) -> Sieve:
    """Take as many bytes, or elements, as the comparison with a limit says."""

    def keeps(table: Table, found: FoundRows, rows: Rows) -> list[int]:
        sizes = table.nbytes if of_bytes else table.elements
        return [row for row in rows if compare(sizes[row], limit)]

    return keeps


def of_dtype(names: frozenset[str]) -> Sieve:
    """Return one of these dtypes."""
    return _of_kind(lambda kind: kind[0] in names)


def on_device(begin: str) -> Sieve:
    """Return device tags that begin so, in lower case."""
    return _of_kind(lambda kind: kind[1].lower().startswith(begin))


def _of_kind(wanted: Callable[[tuple[str, str]], bool]) -> Sieve:
    def keeps(table: Table, found: FoundRows, rows: Rows) -> list[int]:
        kinds = {number for number, kind in enumerate(table.kind_names) if wanted(kind)}
        return [row for row in rows if table.kinds[row] in kinds]

    return keeps


def shaped(pattern: str) -> Sieve:
    """Return dimensions like a pattern, joined by x. Raises UsageError for what no shape could be like."""
    text = pattern.strip("()").replace(" ", "").replace(",", "x").lower()
    text = text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text
    if text != "scalar" and not _SHAPE.fullmatch(text):
        raise UsageError(f'"{pattern}" is not a shape. Use shape:64x3x*, or shape:scalar.')
    match = re.compile(translate("" if text == "scalar" else text)).match

    def keeps(table: Table, found: FoundRows, rows: Rows) -> list[int]:
        known: dict[tuple[int, ...], bool] = {}
        return [row for row in rows if _fits(table.tensors[row], match, known)]

    return keeps


def _fits(tensor: Tensor, match: Callable[[str], object], known: dict[tuple[int, ...], bool]) -> bool:
    shape = tensor.shape
    if shape not in known:
        known[shape] = match("x".join(map(str, shape))) is not None
    return known[shape]


def in_state(state: str) -> Sieve:
    """Return tensors of which one of ``STATES`` is true."""
    holds = _STATES[state]
    return lambda table, found, rows: [row for row in rows if holds(table, row)]


def found_by(wanted: str) -> Sieve:
    """Return tensors that findings of a code, a name or a severity name."""

    def keeps(table: Table, found: FoundRows, rows: Rows) -> list[int]:
        kept = found.rows_of(wanted)
        return [row for row in rows if row in kept]

    return keeps
