"""Writes a difference as JSON, schema ``ckptdoctor/1``: fields are only ever added."""

from __future__ import annotations

from math import isfinite

from ckptdoctor.checkpoint import show_path
from ckptdoctor.differences import Absent, Difference, Numbers, Other, Pair, Side, Single, Tie, Verdict
from ckptdoctor.rendering.contents import value
from ckptdoctor.rendering.diff_groups import rows
from ckptdoctor.rendering.json import SCHEMA, bounded, dump, reading, shape, summary
from ckptdoctor.rendering.summary import summarise

_WAYS = ("renamed", "reshaped", "transposed", "recast", "retagged", "remade", "relaid")


def render(found: Difference, version: str, every: bool = False) -> str:
    """Return everything that differs; ``every`` lists what does not, too."""
    listed = [pair for pair in found.pairs if every or not pair.alike or pair.renamed or pair.retagged or pair.relaid]
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "same": found.same,
            "summary": found.summary,
            "a": _side(found.a),
            "b": _side(found.b),
            "compared_values": found.compared,
            "interrupted": found.interrupted is not None,
            "read": [reading(found.interrupted)] if found.interrupted is not None else [],
            "tolerances": {"rtol": found.rtol, "atol": found.atol},
            "counts": _counts(found),
            "state_dicts": [
                {"role": each.role.value, "a": show_path(each.a), "b": show_path(each.b)} for each in found.sections
            ],
            "steps": list(found.steps),
            "tensors": [_pair(pair) for pair in listed],
            "removed": [_single(each) for each in found.removed],
            "added": [_single(each) for each in found.added],
            "ties": [_tie(each) for each in found.ties],
            "others": [_other(each) for each in found.others],
            "modules": [
                {"name": row.name, "tensors": row.tensors, "tensors_changed": row.changed, **_numbers(row.numbers)}
                for row in rows(found)
            ],
            "ranks": _ranks(found),
            "not_examined": list(found.unseen),
            "seconds": round(found.seconds, 4),
        }
    )


def _side(side: Side) -> dict[str, object]:
    checkpoint = side.checkpoint
    return {
        "path": side.path,
        "format": checkpoint.format,
        "root": show_path(side.root),
        "summary": summary(summarise(checkpoint)),
    }


def _counts(found: Difference) -> dict[str, int]:
    counts = {"both": len(found.pairs), "removed": len(found.removed), "added": len(found.added)}
    counts |= {way: sum(getattr(pair, way) for pair in found.pairs) for way in _WAYS}
    if found.compared:
        told = [pair.values.verdict for pair in found.pairs if pair.values is not None]
        counts |= {each.value.replace(" ", "_"): told.count(each) for each in Verdict}
    return counts


def _pair(pair: Pair) -> dict[str, object]:
    told: dict[str, object] = {
        "a": _tensor(pair.name, pair.a.dtype.name, pair.a.shape, pair.a.device),
        "b": _tensor(pair.name_b, pair.b.dtype.name, pair.b.shape, pair.b.device),
        "weights": pair.weights,
        "differs_in": [way for way in _WAYS if getattr(pair, way)],
        "sure": pair.sure,
        "by_content": pair.by_content,
        "values": None,
    }
    if pair.values is not None:
        numbers = _numbers(pair.values.numbers) if pair.values.numbers is not None else None
        told["values"] = {"verdict": pair.values.verdict.value, "why": pair.values.why, "numbers": numbers}
    return told


def _single(single: Single) -> dict[str, object]:
    tensor = single.tensor
    return {
        **_tensor(single.name, tensor.dtype.name, tensor.shape, tensor.device),
        "weights": single.weights,
        "lost": single.lost,
    }


def _tensor(name: str, dtype: str, sizes: tuple[int, ...], device: str) -> dict[str, object]:
    return {"name": name, "dtype": dtype, "shape": shape(sizes), "device": device}


def _numbers(numbers: Numbers) -> dict[str, object]:
    return {
        "elements": bounded(numbers.elements),
        "changed": numbers.changed,
        "beyond_tolerances": numbers.beyond,
        "max_abs": _finite(numbers.largest),
        "mean_abs": _finite(numbers.mean),
        "relative_l2": _finite(numbers.relative),
        "cosine": _finite(numbers.cosine),
        "nan_a": numbers.nan_a,
        "nan_b": numbers.nan_b,
        "nan_on_one_side": numbers.odd,
    }


def _finite(number: float) -> float | str:
    """Return the number, or its name as text: JSON has neither NaN nor infinity."""
    return number if isfinite(number) else str(number)


def _tie(tie: Tie) -> dict[str, object]:
    return {
        "side": tie.side,
        "names": list(tie.names),
        "missing": list(tie.missing),
        "apart": tie.apart,
        "counts": tie.counts,
    }


def _other(other: Other) -> dict[str, object]:
    return {"name": other.name, "a": _held(other.a), "b": _held(other.b)}


def _held(node: object) -> object:
    """Return the part of a value that is shown: plain ones themselves; None with ``absent`` for what is not there."""
    if isinstance(node, Absent):
        return {"$absent": True}
    if node is None or isinstance(node, (bool, str)):
        return node
    if isinstance(node, int):
        return bounded(node)
    if isinstance(node, float):
        return _finite(node)
    return {"$shown": value(node)}  # type: ignore[arg-type]  # all else is a node


def _ranks(found: Difference) -> dict[str, object] | None:
    ranks = found.ranks
    if ranks is None:
        return None
    return {
        "how": f"randomized sketch of {ranks.directions} directions",
        "low": [
            {"name": each.name, "shape": list(each.shape), "rank": each.rank, "left_over": _finite(each.rest)}
            for each in ranks.low
        ],
        "full": list(ranks.full),
    }
