"""What stands for text in the metadata of a safetensors header, read from the first bytes of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Container

if TYPE_CHECKING:
    from json import JSONDecoder

_METADATA = "__metadata__"
_LENGTH = 8  # bytes that count those of the header
_BLANK = re.compile(r"[ \t\r\n]*")


@cache
def _decoder() -> JSONDecoder:
    from json import JSONDecoder

    return JSONDecoder()


def odd_metadata(container: Container | None) -> tuple[tuple[str, str | None], ...]:
    """Each entry of the metadata that is no text: its name and its value as JSON, None for null.

    Nothing where the metadata does not lie in the first bytes of the file, where nearly every writer puts it.
    """
    if container is None or container.format != "safetensors":
        return ()
    length = int.from_bytes(container.head[:_LENGTH], "little")
    text = container.head[_LENGTH : _LENGTH + length].decode("utf-8", "ignore")
    try:
        found = next((value for name, value in _members(text) if name == _METADATA), "")
        entries = list(_members(found))
    except (RecursionError, ValueError):  # it goes on behind these bytes
        return ()
    return tuple([(name, None if value == "null" else value) for name, value in entries if not value.startswith('"')])


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Each name of a JSON object with its value as it stands; nothing where the text is no object."""
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        return
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        name, end = _decoder().raw_decode(text, at)
        begin = _skip(text, _skip(text, end) + 1)
        _, end = _decoder().raw_decode(text, begin)
        yield name, text[begin:end]
        at = _skip(text, _skip(text, end) + 1)


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
