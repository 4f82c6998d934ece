"""Knows files of safetensors again that have the header of one that was read, byte for byte, and its length."""

from __future__ import annotations

from typing import Any

from ckptdoctor.checkpoint import Checkpoint, Source
from ckptdoctor.formats.alike.renewing import Again, Pattern
from ckptdoctor.formats.safetensors.reader import header_of, remember
from ckptdoctor.noun import replace

_MOST = 4 << 20  # bytes of a header


class Likeness:
    """A file, of which others have the same header. ``kept`` is for what others work out about all of them.

    Raises ValueError where it is nothing that others could be like.
    """

    def __init__(self, source: Source, contents: Checkpoint, before: object = None) -> None:
        if contents.notes:
            raise ValueError("something is odd about it")
        self.kept: dict[str, Any] = {}
        self._header = header_of(source)
        if self._header.data > _MOST:
            raise ValueError("its header is long")
        self._data = source.read(0, self._header.data)
        contents = replace(contents, container=None, identity=None, bytes_read=0)
        self._pattern = Pattern(contents)
        if self._pattern.renewed(contents.path) != contents:
            raise ValueError("it cannot be made again")
        self.blind = self._pattern.blind()

    def again(self, source: Source) -> Again | None:
        """Return what is known of a file of the same length; None where its header is another."""
        data = source.read(0, len(self._data))
        if data != self._data:
            return None
        remember(source, self._header)
        return Again(self._pattern.renewed(source.file))
