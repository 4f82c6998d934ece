"""Reports a seal that was made, and what became of a sealed path, as text for people and as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ckptdoctor.rendering import parity
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.numbers import size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.sealing.manifest import IN_FOLDER, SUFFIX
from ckptdoctor.sealing.seal import SealReport
from ckptdoctor.sealing.verify import ChangedTensor, FileVerdict, Span, VerifyReport
from ckptdoctor.shell import quote
from ckptdoctor.wording import beyond, plural

_LISTED = 20  # tensors and files that are named one by one
_RANGES = 3  # ranges of bytes that a line names
_NAME = 60  # characters of a name


def sealed(report: SealReport, paint: Paint | None = None) -> str:
    """Return what was sealed, and how it is verified later."""
    return "\n".join(_sealed(report, paint or Paint()))


def _sealed(report: SealReport, paint: Paint) -> Iterator[str]:
    files, tensors = report.seal.files, sum(each.tensors for each in report.seal.files)
    what = [plural(len(files), "file")] if report.seal.folder else []
    digest = [] if report.seal.folder else [f"sha256 {files[0].digest}"]
    yield " · ".join([escape(report.path), *what, plural(tensors, "tensor"), size(report.nbytes), *digest])
    for name, reason in report.unnamed[:_LISTED]:
        yield f"note · {escape(name or report.path)}: its tensors cannot be distinguished. {escape(reason)}"
    if len(report.unnamed) > _LISTED:
        yield beyond(len(report.unnamed) - _LISTED, "file", before="note · ")
    yield from _linked(report.path, report.linked, "seal")
    yield from parity.kept(report.parity)
    yield f"{paint.strong('wrote')} {escape(report.output)} in {report.seconds:.2f} s"
    if report.output.endswith((SUFFIX, IN_FOLDER)):
        yield f"next · {paint.accent(f'ckptdoctor verify {quote(report.path)}')}"


def sealed_json(report: SealReport, version: str) -> str:
    """Return the same, schema ``ckptdoctor/1``."""
    files = [
        {"name": each.name, "size": each.size, "sha256": each.digest, "tensors": each.tensors}
        for each in report.seal.files
    ]
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": report.path,
            "output": report.output,
            "files": files,
            "parity": [
                {
                    "path": path,
                    "size": nbytes,
                    "block": layout.block,
                    "blocks": layout.parities,
                    "longest_run": layout.run,
                }
                for path, nbytes, layout in report.parity
            ],
            "unnamed": [{"name": name, "reason": reason} for name, reason in report.unnamed],
            "linked": list(report.linked),
        }
    )


def verified(report: VerifyReport, paint: Paint | None = None) -> str:
    """Return what is as it was sealed, and what is not: tensors by name, with the bytes of the file that changed."""
    return "\n".join(_verified(report, paint or Paint()))


def _verified(report: VerifyReport, paint: Paint) -> Iterator[str]:
    tensors = sum(each.tensors for each in report.files)
    read = f"read {size(report.bytes_read)} in {report.seconds:.2f} s"
    if report.as_sealed:
        what = [plural(len(report.files), "file")] if len(report.files) > 1 else []
        yield " · ".join([escape(report.path), paint.strong("as sealed"), *what, plural(tensors, "tensor"), read])
        if report.asked:
            yield "Nothing else was read."
        yield from _linked(report.path, report.linked, "verify")
        yield from _parities(report, paint)
        return
    changed = sum(len(each.changed) for each in report.files)
    yield " · ".join([escape(report.path), paint.strong("not as sealed"), _share(changed, tensors), read])
    lines = [line for file in report.files if not file.as_sealed for line in _file(file, report)]
    lines += [f"  new       {_short(name)}: sealed without it" for name in report.added]
    yield from lines[:_LISTED]
    if len(lines) > _LISTED:
        yield beyond(len(lines) - _LISTED, "line", before="  and ", after="; --format json lists them all")
    if report.asked:
        yield "Nothing else was read."
    yield from _linked(report.path, report.linked, "verify")
    yield from _parities(report, paint)


def _linked(path: str, links: Sequence[str], command: str) -> Iterator[str]:
    """Yield what is left out of the seal of a folder, and how that is done by itself."""
    for each in links[:_LISTED]:
        its = quote(os.path.join(path, *each.split("/")))
        why = "is a link to a folder elsewhere, which the seal leaves out"
        yield f"note · {_short(each)} {why}: ckptdoctor {command} {its}"
    if len(links) > _LISTED:
        yield beyond(len(links) - _LISTED, "link", before="note · ")


def _parities(report: VerifyReport, paint: Paint) -> Iterator[str]:
    for file in report.files:
        if file.parity is not None:
            path, name = file.parity.path.removesuffix(".parity"), file.name if len(report.files) > 1 else ""
            yield from parity.verdict(file.parity, path, file.as_sealed, paint, name)


def _share(changed: int, tensors: int) -> str:
    return f"{changed:,} of {plural(tensors, 'tensor')} changed" if changed else "no tensor changed"


def _file(file: FileVerdict, report: VerifyReport) -> Iterator[str]:
    place = f" of {_short(file.name)}" if len(report.files) > 1 else ""
    if file.size is None:
        yield f"  missing   {_short(file.name)}"
        return
    if file.size != file.sealed_size:
        yield f"  size      {file.size:,} bytes{place}; sealed with {file.sealed_size:,}"
    for tensor in file.changed:
        yield f"  changed   {_short(tensor.name)}   {_bytes(tensor.ranges)}{place}"
    if file.ranges:
        yield f"  changed   {_bytes(file.ranges)}{place}"
    if file.outside:
        yield f"  changed   bytes outside of tensors{place}: names, shapes, or what is between tensors"


def _bytes(ranges: Sequence[Span]) -> str:
    shown = ", ".join([f"{start:,} to {stop - 1:,}" for start, stop in ranges[:_RANGES]])
    return f"bytes {shown}{beyond(len(ranges) - _RANGES, 'range')}"


def _short(name: str) -> str:
    return abridged(escape(name), _NAME)


def verified_json(report: VerifyReport, version: str) -> str:
    """Return the same, schema ``ckptdoctor/1``; ranges are [first byte, one past the last]."""
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": report.path,
            "seal": report.seal,
            "as_sealed": report.as_sealed,
            "files": [_entry(each) for each in report.files],
            "added": list(report.added),
            "linked": list(report.linked),
            "asked": list(report.asked),
            "bytes_read": report.bytes_read,
        }
    )


def _entry(file: FileVerdict) -> dict[str, object]:
    return {
        "name": file.name,
        "as_sealed": file.as_sealed,
        "size": file.size,
        "sealed_size": file.sealed_size,
        "tensors": file.tensors,
        "changed": [_changed(each) for each in file.changed],
        "ranges": [list(each) for each in file.ranges],
        "outside_of_tensors": file.outside,
        "parity": parity.verdict_json(file.parity),
    }


def _changed(tensor: ChangedTensor) -> dict[str, object]:
    return {"name": tensor.name, "ranges": [list(each) for each in tensor.ranges]}
