"""The values of a checkpoint as JSON: every statistic of every tensor."""

from __future__ import annotations

from math import isfinite

from ckptdoctor.checkpoint import KeyPath, Tensor, show_path
from ckptdoctor.facts.values import Histogram, TensorValues, Values
from ckptdoctor.report.json import SCHEMA, bounded, dump, shape
from ckptdoctor.report.show_json import filter_of
from ckptdoctor.report.value_numbers import Total, totals


def render(values: Values, version: str, root: KeyPath = (), asked: tuple[str, int] | None = None) -> str:
    """The tensors in the order of the file, sums by dtype, and what was not read. ``complete``: false after Ctrl-C.

    ``asked`` is the filter that kept them, and of how many tensors it was asked.
    """
    read = [(tensor, found) for tensor in values.checkpoint.tensors if (found := values.of(tensor)) is not None]
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": values.checkpoint.path,
            "format": values.checkpoint.format,
            "root": show_path(root),
            **filter_of(asked),
            "complete": values.complete,
            "bytes_read": values.read,
            "tensors": [_tensor(tensor, found) for tensor, found in read],
            "totals": {
                name: _total(total)
                for name, total in totals((tensor.dtype.name, found) for tensor, found in read).items()
            },
            "skipped": [{"path": show_path(each.path), "why": each.reason} for each in values.skipped],
        }
    )


def _tensor(tensor: Tensor, found: TensorValues) -> dict[str, object]:
    return {
        "path": show_path(tensor.path),
        "key": tensor.key,
        "dtype": tensor.dtype.name,
        "shape": shape(tensor.shape),
        "count": bounded(found.count),
        "nan": bounded(found.nan),
        "positive_inf": bounded(found.positive_inf),
        "negative_inf": bounded(found.negative_inf),
        "zeros": bounded(found.zeros),
        "min": _float(found.min),
        "max": _float(found.max),
        "mean": _float(found.mean),
        "std": _float(found.std),
        "absmax": _float(found.absmax),
        "norm": _float(found.norm),
        "constant": found.constant,
        "fits": list(found.fits),
        "duplicated_rows": found.duplicated_rows,
        "histogram": _histogram(found.histogram),
    }


def _histogram(histogram: Histogram | None) -> dict[str, object] | None:
    if histogram is None:
        return None
    return {
        "edges": [_float(edge) for edge in histogram.edges],
        "counts": list(histogram.counts),
        "sampled": histogram.sampled,
        "exponents": {str(exponent): count for exponent, count in histogram.exponents},
    }


def _total(total: Total) -> dict[str, object]:
    return {
        "tensors": total.tensors,
        "count": bounded(total.count),
        "nan": bounded(total.nan),
        "infinite": bounded(total.infinite),
        "zeros": bounded(total.zeros),
        "min": _float(total.min if total.finite else 0.0),
        "max": _float(total.max if total.finite else 0.0),
        "mean": _float(total.mean),
        "std": _float(total.std),
        "norm": _float(total.norm),
    }


def _float(number: float) -> object:
    """JSON has no infinity: squares of numbers beyond 1e154 are more than a float holds."""
    return number if isfinite(number) else {"$float": str(number)}
