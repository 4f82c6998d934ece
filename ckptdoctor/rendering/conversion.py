"""Reports a conversion, for people and as JSON, schema ``ckptdoctor/1``: fields are only ever added."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import show_path
from ckptdoctor.findings import ConvertReport, Loader, NextStep
from ckptdoctor.rendering import loading
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.numbers import plural, size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.wrapping import abridged, wrapped
from ckptdoctor.wording import and_more, first_few, format_name

_LISTED = 6  # names that a line shows
_NAME = 60  # characters of each


def render(report: ConvertReport, paint: Paint | None = None, width: int | None = None) -> str:
    """Return the outcome as text: what was written, kept and left out, what was proven, and how to load it."""
    return "\n".join(_lines(report, paint or Paint(), width))


def refused(message: str, paint: Paint | None = None) -> str:
    """Return why nothing was done. ``message`` may hold names from a file; its own lines stay lines."""
    first, *more = [escape(line) for line in message.split("\n")]
    return "\n".join([f"{(paint or Paint()).strong('refused')} · {first}", *more])


def _lines(report: ConvertReport, paint: Paint, width: int | None) -> Iterator[str]:
    source = report.sources[0] if len(report.sources) == 1 else plural(len(report.sources), "file")
    amount = f"{plural(report.tensors, 'tensor')}, {size(report.nbytes)}"
    yield f"{escape(source)} · {format_name(report.source_format)} → {format_name(report.format)} · {amount}"
    yield from rows(report, width)
    kept = "the original was replaced" if report.replaces_original else "the original is untouched"
    files = f" ({plural(len(report.files), 'file')})" if len(report.files) > 1 else ""
    yield f"{paint.strong('wrote')} {escape(report.output)}{files} in {report.seconds:.2f} s; {kept}"
    yield from wrapped(f"verified · {proven(report)}", width, "", "  ")
    yield from loading.lines(report.next, next_step(report), paint, width)


def rows(report: ConvertReport, width: int | None) -> Iterator[str]:
    """Yield the rows that say what became of what."""
    for label, names in _rows(report):
        yield from wrapped(f"  {label:<9} {names}", width, "", "            ")


def _rows(report: ConvertReport) -> Iterator[tuple[str, str]]:
    if report.root:
        yield "took", _shown([show_path(report.root)])
    if report.called is not None:
        yield "called", f"{escape(report.called)}, since the tensor itself has no name"
    if report.tied:
        yield "tied", _pairs(report.tied)
    if report.restored:
        yield "tied", f"{_pairs(report.restored)} (from the metadata)"
    if report.doubled:
        yield "copied", f"{plural(report.doubled, 'tensor')} that shared memory no longer do"
    for each in report.twins[:_LISTED]:
        number = f"{each.number:,} of {plural(each.of, 'tensor')}"
        yield "twice", f"{number} of {escape(each.one)}, equal to others in {escape(each.other)}: {_pairs(each.names)}"
    if report.sidecar is not None:
        yield "kept", f"{_shown(report.kept)} in {escape(report.sidecar)}"
    if report.described:
        yield "described", f"{_shown(report.described)}: not plain data, so only its description"
    if report.left_out:
        yield "left out", _shown(report.left_out)
    for line in first_few([escape(told) for told in report.absent], _LISTED):
        yield "lacking", line


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return _shown([f"{alias} → {owner}" for alias, owner in pairs])


def _shown(names: Sequence[str]) -> str:
    return and_more(names, _LISTED, say=lambda name: abridged(escape(name), _NAME))


def proven(report: ConvertReport) -> str:
    """Return the comparisons that were made, and how they came out."""
    told = f"{report.identical:,} of {plural(report.tensors, 'tensor')} byte-identical"
    if report.remade:
        told += f", {report.remade:,} with exactly the same elements in another layout"
    if report.computed:
        told += f", {report.computed:,} computed twice with the same result"
    return told


def next_step(report: ConvertReport) -> str:
    """Return the call that loads the result, or the command before it; "" where none is known."""
    if report.format == "torch zip":
        return loading.line(report.next or NextStep(Loader.TORCH), report.output, report.weights or ())
    if report.format == "torch distributed checkpoint":
        return f"torch.distributed.checkpoint.load(state_dict, checkpoint_id={loading.literal(report.output)})"
    if report.format == "safetensors":
        return f"safetensors.torch.load_file({loading.literal(report.output)})"
    return f"AutoModel.from_pretrained({loading.literal(os.path.join(report.output, ''))}), with its config.json there"


def as_json(report: ConvertReport, version: str) -> str:
    """Return the outcome as JSON: what was written, what was proven of it, and what the target could not hold."""
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "paths": list(report.sources),
            "output": report.output,
            "status": "converted",
            "message": None,
            "source_format": report.source_format,
            "format": report.format,
            "files": [{"name": name, "bytes": nbytes} for name, nbytes in report.files],
            "tensors": report.tensors,
            "bytes": report.nbytes,
            "proof": {"identical": report.identical, "remade": report.remade},
            "next": next_step(report) or None,
            "root": show_path(report.root) if report.root else None,
            "called": report.called,
            "tied": dict(report.tied),
            "restored": dict(report.restored),
            "copied": report.doubled,
            "sidecar": report.sidecar,
            "kept": list(report.kept),
            "described": list(report.described),
            "left_out": list(report.left_out),
            "absent": list(report.absent),
            "twins": [{"path": each.one, "in": each.other, "tensors": each.number} for each in report.twins],
            "seconds": round(report.seconds, 4),
        }
    )


def refused_as_json(paths: Sequence[str], message: str, version: str, status: str = "refused") -> str:
    """Return a conversion that was refused, and why; or one that was "interrupted"."""
    head = {"schema": SCHEMA, "version": version, "paths": list(paths), "output": None, "status": status}
    return dump({**head, "message": message})
