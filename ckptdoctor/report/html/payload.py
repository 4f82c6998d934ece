"""The figures of every tensor in columns, small enough that 50,000 tensors are a few megabytes."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from ckptdoctor.checkpoint import KeyPath, Tensor
from ckptdoctor.differences import Difference, Pair, Verdict
from ckptdoctor.facts.values import Histogram
from ckptdoctor.report.html.examined import Examined
from ckptdoctor.report.html.modules import Modules
from ckptdoctor.report.numbers import plain
from ckptdoctor.wording import and_so_on

_LARGEST = 1 << 60  # bytes and elements beyond are no tensor
LEVELS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BARS = 16  # of a histogram in the table
_MANY = 20_000  # tensors with which figures get one digit less
_NUMBERS = ("min", "max", "mean", "std", "norm")
_COUNTS = ("nan", "infinite", "zeros")


def payload(examined: Examined, made: Modules) -> dict[str, object]:
    """Columns, one entry for each tensor; texts that come often are numbered in lists of their own."""
    tensors = examined.tensors
    data: dict[str, object] = {
        "pieces": made.pieces,
        "parents": made.parents,
        "levels": made.levels,
        "homes": made.homes,
        "leaves": made.leaves,
        "bytes": [0 if number in examined.tied else bounded(each.nbytes) for number, each in enumerate(tensors)],
        "elements": [bounded(tensor.numel) for tensor in tensors],
        "tied": {str(number): other for number, other in examined.tied.items()},
        "marks": marks(examined),
    }
    data["dtypes"], data["dtype"] = _numbered([tensor.dtype.name for tensor in tensors])
    data["shapes"], data["shape"] = _numbered([_shape(tensor) for tensor in tensors])
    data["devices"], data["device"] = _numbered([tensor.device for tensor in tensors])
    data["kinds"], data["kind"] = _numbered(kinds(examined))
    if examined.values is not None:
        data["values"] = _values(examined)
    if examined.difference is not None:
        data["states"], data["state"], data["change"] = _changes(examined.tensors, examined.difference)
    return data


def bounded(number: int) -> int:
    """An integer that a browser can hold."""
    return min(number, _LARGEST)


def kinds(examined: Examined) -> list[str]:
    """What each tensor belongs to: a model, an optimizer, …; "other" outside of all state dicts."""
    roles: dict[KeyPath, str] = {}
    for each in examined.checkpoint.state_dicts if examined.checkpoint is not None else ():
        for tensor in each.tensors:
            roles.setdefault(tensor.path, each.role.value)
    return [roles.get(tensor.path, "other") for tensor in examined.tensors]


def marks(examined: Examined) -> list[int]:
    """The worst finding that names each tensor: 0 none, then 1 for info to 3 for error.

    A finding that names many of them is about the file, and marks none.
    """
    worst: dict[KeyPath, int] = {}
    most = max(8, len(examined.tensors) // 10)
    for finding in examined.report.findings:
        for key in finding.keys if len(finding.keys) <= most else ():
            worst[key] = max(worst.get(key, 0), finding.severity.rank + 1)
    return [worst.get(tensor.path, 0) for tensor in examined.tensors]


def _shape(tensor: Tensor) -> str:
    return and_so_on(map(plain, tensor.shape), 16, between=" × ", end=" × …")


def _numbered(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """The different texts, and the number of each."""
    numbers: dict[str, int] = {}
    every = [numbers.setdefault(each, len(numbers)) for each in texts]
    return list(numbers), every


def _values(examined: Examined) -> dict[str, object]:
    found = [examined.measured(tensor) for tensor in examined.tensors]
    digits = 3 if len(found) > _MANY else 4
    columns: dict[str, object] = {
        name: [None if each is None else rounded(getattr(each, name), digits) for each in found] for name in _NUMBERS
    }
    for name in _COUNTS:
        columns[name] = [None if each is None else bounded(getattr(each, name)) for each in found]
    columns["bars"] = ["" if each is None else bars(each.histogram) for each in found]
    return columns


def rounded(number: float, digits: int = 4) -> float | int | None:
    """A float in so few digits; None for what is no number in JSON."""
    if not isfinite(number):
        return None
    short = float(f"{number:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 10**digits else short


def bars(histogram: Histogram | None) -> str:
    """The heights of a histogram, one sign each: 0 is empty, z the highest."""
    if histogram is None:
        return ""
    counts = histogram.counts
    if len(counts) % _BARS == 0:
        step = len(counts) // _BARS
        counts = tuple([sum(counts[at : at + step]) for at in range(0, len(counts), step)])
    top, highest = max(counts, default=0) or 1, len(LEVELS) - 1
    return "".join([LEVELS[-(-count * highest // top)] for count in counts])


def _changes(
    tensors: Sequence[Tensor], difference: Difference
) -> tuple[list[str], list[int], list[float | int | None]]:
    """What became of each tensor in the other file: in a word, and how far its values are away."""
    pairs = {pair.a.path: pair for pair in difference.pairs}
    gone = {single.tensor.path for single in difference.removed}
    words, far = [], []
    for tensor in tensors:
        pair = pairs.get(tensor.path)
        words.append(_word(pair) if pair is not None else "only in A" if tensor.path in gone else "not compared")
        numbers = pair.values.numbers if pair is not None and pair.values is not None else None
        same = pair is not None and pair.values is not None and pair.values.verdict is Verdict.EQUAL
        far.append(rounded(numbers.relative) if numbers is not None else 0 if same else None)
    return (*_numbered(words), far)


def _word(pair: Pair) -> str:
    told = [
        word for word, so in (("reshaped", pair.reshaped), ("recast", pair.recast), ("renamed", pair.renamed)) if so
    ]
    if pair.values is not None:
        verdict = pair.values.verdict
        word = "equal" if verdict is Verdict.EQUAL else "changed" if verdict is Verdict.OTHER_BYTES else verdict.value
        return ", ".join([*told, word]) if word != "not compared" or not told else ", ".join(told)
    return ", ".join(told) or "same header"
