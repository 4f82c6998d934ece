"""Writes the contents as JSON: every tensor with its view and storage, state dicts, the rest; or all values."""

from __future__ import annotations

from math import isfinite

from ckptdoctor.checkpoint import (
    Checkpoint,
    Cycle,
    Elided,
    KeyPath,
    Mapping,
    Named,
    Node,
    Opaque,
    Sequence,
    Tensor,
    show_part,
    show_path,
)
from ckptdoctor.rendering import devices
from ckptdoctor.rendering.json import SCHEMA, bounded, dump, shape, summary
from ckptdoctor.rendering.summary import summarise
from ckptdoctor.rendering.value_numbers import Total, totals
from ckptdoctor.values.statistics import Histogram, TensorValues, Values

_DEPTH = 64  # levels of nested contents that are written; beyond it the kind alone


def render(
    checkpoint: Checkpoint,
    version: str,
    root: KeyPath = (),
    node: Node = None,
    asked: tuple[str, int] | None = None,
) -> str:
    """Return the part of the contents at ``root`` (``node``; None at no root: everything).

    ``asked`` is the filter that kept it, and of how many tensors it was asked.
    """
    tensors = [tensor for tensor in checkpoint.tensors if tensor.path[: len(root)] == root]
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": checkpoint.path,
            "format": checkpoint.format,
            "root": show_path(root),
            **filter_of(asked),
            "summary": summary(summarise(checkpoint)),
            "metadata": checkpoint.metadata,
            "state_dicts": [
                {"path": show_path(each.path), "role": each.role.value, "tensors": len(each.tensors)}
                for each in checkpoint.state_dicts
            ],
            "devices": devices.as_data(checkpoint),
            "tensors": [_tensor(tensor) for tensor in tensors],
            "contents": _plain(checkpoint.tree if node is None and not root else node, _DEPTH),
        }
    )


def filter_of(asked: tuple[str, int] | None) -> dict[str, object]:
    """Return the entry of the filter, and of how many tensors there were before it; none without one."""
    return {"filter": {"text": asked[0], "of_tensors": asked[1]}} if asked is not None else {}


def _tensor(tensor: Tensor) -> dict[str, object]:
    return {
        "path": show_path(tensor.path),
        "key": tensor.key,
        "dtype": tensor.dtype.name,
        "shape": shape(tensor.shape),
        "stride": shape(tensor.stride),
        "offset": bounded(tensor.offset),
        "bytes": bounded(tensor.nbytes),
        "device": tensor.device,
        "storage": tensor.storage.key if tensor.storage is not None else None,
        "layout": tensor.layout,
        "parameter": tensor.is_parameter,
        "requires_grad": tensor.requires_grad,
        "class": tensor.subclass,
    }


def _plain(node: Node, depth: int) -> object:
    """Plain values as they are; everything else as an object whose one key begins with ``$``."""
    if node is None or isinstance(node, bool | str):
        return node
    if isinstance(node, int):
        return bounded(node)
    if isinstance(node, float):
        return node if node - node == 0 else {"$float": str(node)}  # JSON has neither NaN nor infinity
    if isinstance(node, bytes):
        return {"$bytes": len(node)}
    if isinstance(node, Tensor):
        return {"$tensor": show_path(node.path)}
    return _compound(node, depth)


def _compound(node: Mapping | Sequence | Opaque | Named | Cycle | Elided, depth: int) -> object:
    if isinstance(node, Named):
        return {"$name": node.name}
    if isinstance(node, Cycle):
        return {"$same": show_path(node.path)}
    if isinstance(node, Elided) or depth == 0:
        return {"$elided": node.reason if isinstance(node, Elided) else "nested deeper than this report shows"}
    if isinstance(node, Mapping):
        return {show_part(part): _plain(child, depth - 1) for part, child in node.entries}
    if isinstance(node, Sequence):
        return [_plain(child, depth - 1) for child in node.items]
    return {
        "$class": node.class_name,
        "arguments": [_plain(child, depth - 1) for child in node.arguments],
        "state": _plain(node.state, depth - 1),
    }


def render_values(values: Values, version: str, root: KeyPath = (), asked: tuple[str, int] | None = None) -> str:
    """Return tensors in the order of the file, sums by dtype, and what was not read; not ``complete`` after Ctrl-C.

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
            "tensors": [_values_of(tensor, found) for tensor, found in read],
            "totals": {
                name: _total(total)
                for name, total in totals((tensor.dtype.name, found) for tensor, found in read).items()
            },
            "skipped": [{"path": show_path(each.path), "why": each.reason} for each in values.skipped],
        }
    )


def _values_of(tensor: Tensor, found: TensorValues) -> dict[str, object]:
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
    """Return the number, or text for one that JSON does not have: squares beyond 1e154 are infinite."""
    return number if isfinite(number) else {"$float": str(number)}
