"""Where a finding shows, as SARIF says it: a file, a range of its bytes where that is known, and keys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from urllib.parse import quote

from ckptdoctor.checkpoint import KeyPath, Tensor, addresses, show_part, show_path
from ckptdoctor.checkpoint.tensor import is_contiguous
from ckptdoctor.findings import FileReport, Finding

_SAFE = "/~!$&'()*+,;=@"  # of a path, what RFC 3986 allows in it; a colon might end a scheme

_Object = dict[str, object]


def uri(path: str) -> str:
    """A relative reference for a relative path, an address as it is, ``file://`` for an absolute path."""
    if addresses.is_address(path):
        return quote(path, safe=_SAFE + ":?%#[]", errors="surrogatepass")
    path = path.replace(os.sep, "/")
    named = quote(os.fsencode(path), safe=_SAFE)
    if path.startswith("/"):
        return f"file://{named}"
    return f"file:///{named}" if os.path.isabs(path) else named.removeprefix("./") or "."


class Places:
    """The locations of findings in one file. ``index`` is its number among the artifacts."""

    def __init__(self, file: FileReport, index: int) -> None:
        self._file = file
        self._index = index

    def of(self, finding: Finding, most: int) -> Iterator[_Object]:
        """One location for each key, at most so many; the first tells the byte range of the finding itself."""
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
        """The bytes of a tensor, where they lie in the file as they are."""
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
    """3.30.9 and 3.30.10: what is no text has neither lines nor columns."""
    if offset is None or offset < 0:
        return None
    region: _Object = {"byteOffset": offset}
    return region | ({"byteLength": length} if length else {})


def _logical(path: KeyPath | None) -> Iterator[_Object]:
    """A key: 3.33.7 calls parts of nested data properties."""
    if path:
        yield {"name": show_part(path[-1]), "fullyQualifiedName": show_path(path), "kind": "property"}
