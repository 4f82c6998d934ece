"""Reads a text of any length in bounded memory, in the encodings that shells write."""

from __future__ import annotations

import codecs
from collections import deque
from typing import BinaryIO

_CHUNK = 1 << 20
_HEAD = 8  # chunks kept of the beginning
_TAIL = 8  # chunks kept of the end

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16-le",  # > and | of Windows PowerShell
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def read_stream(stream: BinaryIO) -> str:
    """The text; of more than 16 MB its beginning and its end."""
    head: list[bytes] = []
    tail: deque[bytes] = deque(maxlen=_TAIL)
    while chunk := stream.read(_CHUNK):
        (head if len(head) < _HEAD else tail).append(chunk)
    data = b"".join((*head, *tail))
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8")
    return data.decode(encoding, "replace").removeprefix("\ufeff")
