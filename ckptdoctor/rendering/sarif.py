"""Writes the report as SARIF 2.1.0, which code scanning of GitHub and editors read.

Source: Static Analysis Results Interchange Format (SARIF) Version 2.1.0, OASIS Standard; numbers of sections in
comments are its. What GitHub makes of it: "SARIF support for code scanning" in its documentation.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from textwrap import dedent
from urllib.parse import quote

from ckptdoctor.checkpoint import KeyPath, Tensor, show_part, show_path
from ckptdoctor.checkpoint.tensor import is_contiguous
from ckptdoctor.findings import FileReport, Finding, Report, Severity
from ckptdoctor.remote import addresses
from ckptdoctor.rendering.github import annotation
from ckptdoctor.rendering.interrupted import interrupted, left_behind, not_begun
from ckptdoctor.rendering.json import dump
from ckptdoctor.rendering.rule_table import RulePage
from ckptdoctor.rendering.shell import fix_command

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
HOME = "https://github.com/ckptdoctor/ckptdoctor"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_PLACEHOLDER = re.compile(r"\{(\d+)\}")
_LOCATIONS = 100  # keys of one finding that get a location of their own

_Object = dict[str, object]


def render(report: Report, version: str, rules: Iterable[RulePage], statistics: bool = False) -> str:
    """Return the whole report. Of ``rules`` those are described that found something."""
    found = {finding.code for file in report.files for finding in file.findings}
    described = [rule for rule in rules if rule.code in found]
    numbers = {rule.code: number for number, rule in enumerate(described)}
    driver: _Object = {
        "name": "ckptdoctor",
        "version": version,
        "informationUri": HOME,
        "rules": [descriptor(rule) for rule in described],
    }
    run: _Object = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
        "artifacts": [_artifact(file) for file in report.files],
        "results": [
            each
            for number, file in enumerate(report.files)
            for each in _results(file, ArtifactPlaces(file, number), numbers)
        ],
    }
    if statistics:
        counted = Counter([finding.code for file in report.files for finding in file.findings])
        run["properties"] = {"statistics": dict(sorted(counted.items()))}
    return dump({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _artifact(file: FileReport) -> _Object:
    artifact: _Object = {"location": {"uri": uri(file.path)}}
    if file.container is not None:
        artifact["length"] = file.container.size
        artifact["properties"] = {"format": file.container.format}
    return artifact


def _invocation(report: Report) -> _Object:
    """Return whether all files could be examined, and what was not: 3.20.14, 3.20.21."""
    unread = report.interrupted or any(file.error is not None for file in report.files)
    told = list(_notifications(report.files))
    for text in filter(None, [not_begun(report), left_behind(report)]):
        told.append({"level": "warning", "message": _message(text)})
    return {"executionSuccessful": not unread, "toolExecutionNotifications": told}


def _notifications(files: Sequence[FileReport]) -> Iterator[_Object]:
    for number, file in enumerate(files):
        place = [{"physicalLocation": {"artifactLocation": {"uri": uri(file.path), "index": number}}}]
        if file.error is not None:
            yield {"level": "error", "message": _message(file.error), "locations": place}
        if file.interrupted:
            yield {"level": "warning", "message": _message(interrupted(file)), "locations": place}
        for each in file.skipped:
            text = f"Not examined: {each.what} ({each.why})"
            yield {"level": "note", "message": _message(text), "locations": place}


def _results(file: FileReport, places: ArtifactPlaces, numbers: dict[str, int]) -> Iterator[_Object]:
    seen: dict[str, int] = {}
    for finding in file.findings:
        identity = _identity(finding, file.path)
        seen[identity] = seen.get(identity, 0) + 1
        result: _Object = {"ruleId": finding.code}
        if finding.code in numbers:
            result["ruleIndex"] = numbers[finding.code]
        fingerprint = f"{identity}:{seen[identity]}"
        yield result | {
            "level": LEVELS[finding.severity],
            "message": _message("\n".join(annotation(finding, file.path))),
            "locations": list(places.of(finding, _LOCATIONS)),
            # the second is what GitHub would otherwise compute from lines, of which there are none
            "partialFingerprints": {"ckptdoctor/v1": fingerprint, "primaryLocationLineHash": fingerprint},
            "properties": _properties(finding, file.path),
        }


def _properties(finding: Finding, path: str) -> _Object:
    fix = finding.fix
    repair = {"title": fix.title, "safety": fix.safety.value, "command": fix_command(path, fix)} if fix else None
    return {"keys": len(finding.keys), "torchSays": list(finding.torch_says), "repair": repair}


def _identity(finding: Finding, path: str) -> str:
    """Return the identity of a finding from run to run: neither its wording nor the place of bytes."""
    first = finding.keys[:1]
    state_dict: KeyPath = finding.location.path or (first[0][:-1] if first else ())
    parts = (finding.code, uri(path), show_path(state_dict), finding.location.member or "", *map(show_path, first))
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _message(text: str) -> _Object:
    """Plain text in which nothing is a placeholder (3.11.5) or a link (3.11.6); other braces are seen as they are."""
    return {"text": _PLACEHOLDER.sub(r"{{\1}}", text).replace("](", "] (")}


# ---- a rule as SARIF describes rules: its page as help, in plain text and in Markdown


_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_LITERAL = re.compile(r"``(.+?)``", re.DOTALL)
_SECTION = re.compile(r"^(\S.*)\n(?=    )((?: {4}.*\n?|\n)+)", re.MULTILINE)


def descriptor(rule: RulePage) -> dict[str, object]:
    """Return the ``reportingDescriptor`` of a rule. Markdown is what GitHub shows, plain text what others do."""
    page = rule.page.strip()
    meaning = sections(page).get("Meaning", rule.summary)
    described: dict[str, object] = {
        "id": rule.code,
        "name": _pascal(rule.name),
        "shortDescription": {"text": _text(rule.summary)},
        "fullDescription": {"text": _text(" ".join(meaning.split()))},
        "help": {"text": _text(page), "markdown": _markdown(rule)},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": ["checkpoint", rule.name]},
    }
    if rule.address is not None:
        described["helpUri"] = rule.address
    return described


def sections(page: str) -> dict[str, str]:
    """Return the titled sections of a page, each without its indentation."""
    return {match[1]: dedent(match[2]).strip() for match in _SECTION.finditer(page)}


def _markdown(rule: RulePage) -> str:
    parts = [f"# {rule.code} {rule.name}", _marked(rule.summary)]
    for title, text in sections(rule.page).items():
        body = f"```text\n{text}\n```" if title == "Symptoms" else _marked(text)
        parts.append(f"## {title}\n\n{body}")
    return "\n\n".join(parts)


def _marked(text: str) -> str:
    return _LITERAL.sub(lambda match: f"`{' '.join(match[1].split())}`", text)


def _text(text: str) -> str:
    return _LITERAL.sub(r"\1", text)


def _pascal(name: str) -> str:
    """Return ``ModulePrefix``: 3.49.7 asks for an identifier that people can read."""
    return "".join([word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", name)])


_SAFE = "/~!$&'()*+,;=@"  # of a path, what RFC 3986 allows in it; a colon might end a scheme


def uri(path: str) -> str:
    """Return a relative reference for a relative path, an address as it is, ``file://`` for an absolute path."""
    if addresses.is_address(path):
        return quote(path, safe=_SAFE + ":?%#[]", errors="surrogatepass")
    path = path.replace(os.sep, "/")
    named = quote(os.fsencode(path), safe=_SAFE)
    if path.startswith("/"):
        return f"file://{named}"
    return f"file:///{named}" if os.path.isabs(path) else named.removeprefix("./") or "."


class ArtifactPlaces:
    """The locations of findings in one file. ``index`` is its number among the artifacts."""

    def __init__(self, file: FileReport, index: int) -> None:
        self._file = file
        self._index = index

    def of(self, finding: Finding, most: int) -> Iterator[_Object]:
        """Yield a location for each key, at most so many; the first has the byte range of the finding itself."""
        location = finding.location
        region = _region(location.offset, location.length) if not self._files_inside else None
        if not finding.keys:
            yield self._location(self._physical(region), [*self._member(finding), *_logical(location.path)])
            return
        for number, key in enumerate(finding.keys[:most]):
            first = number == 0
            physical = self._physical(region) if first and region else self._tensor(key)
            yield self._location(physical, [*(self._member(finding) if first else ()), *_logical(key)])

    def _location(self, physical: _Object, logical: list[_Object]) -> _Object:
        return {"physicalLocation": physical} | ({"logicalLocations": logical} if logical else {})

    def _physical(self, region: _Object | None = None) -> _Object:
        place: _Object = {"artifactLocation": {"uri": uri(self._file.path), "index": self._index}}
        return place | ({"region": region} if region else {})

    def _member(self, finding: Finding) -> Iterator[_Object]:
        member = finding.location.member
        if member:
            yield {"fullyQualifiedName": member, "kind": "resource"}

    def _tensor(self, key: KeyPath) -> _Object:
        """Return the bytes of a tensor, where they are in the file unchanged."""
        tensor = self._tensors.get(key)
        storage = tensor.storage if tensor is not None else None
        if tensor is None or storage is None or storage.extent is None or tensor.chunks or tensor.parts:
            return self._physical()
        extent = storage.extent
        region = _region(extent.offset, extent.length)
        inside = (tensor.offset * tensor.dtype.bits // 8, tensor.nbytes)
        if is_contiguous(tensor) and not storage.compressed and sum(inside) <= extent.length:
            region = _region(extent.offset + inside[0], inside[1])
        if not self._files_inside:
            return self._physical(region)
        shown = addresses.shown(extent.file)
        if not shown.startswith(self._file.path):
            return self._physical()
        return {"artifactLocation": {"uri": uri(shown)}} | ({"region": region} if region else {})

    @cached_property
    def _tensors(self) -> dict[KeyPath, Tensor]:
        checkpoint = self._file.checkpoint
        return {tensor.path: tensor for tensor in checkpoint.tensors} if checkpoint is not None else {}

    @cached_property
    def _files_inside(self) -> bool:
        """Whether it is a folder, or an index, so that an offset says nothing without the file in it."""
        checkpoint = self._file.checkpoint
        if checkpoint is None or not checkpoint.storages:
            return False
        files = {each.extent.file for each in checkpoint.storages if each.extent is not None}
        own = {self._file.path, checkpoint.path}
        return len(files) > 1 or not all(addresses.shown(each) in own for each in files)


def _region(offset: int | None, length: int | None) -> _Object | None:
    """Return bytes for a region (3.30.9, 3.30.10): what is not text has neither lines nor columns."""
    if offset is None or offset < 0:
        return None
    region: _Object = {"byteOffset": offset}
    return region | ({"byteLength": length} if length else {})


def _logical(path: KeyPath | None) -> Iterator[_Object]:
    """Yield a key: 3.33.7 calls parts of nested data properties."""
    if path:
        yield {"name": show_part(path[-1]), "fullyQualifiedName": show_path(path), "kind": "property"}
