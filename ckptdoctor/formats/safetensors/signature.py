"""Recognises a safetensors file, whole or damaged, by its first bytes."""

from __future__ import annotations

NAME = "safetensors"

# the number before the header, little-endian
LENGTH_BYTES = 8

# safetensors refuses longer headers (MAX_HEADER_SIZE of its Rust crate)
MAX_HEADER_BYTES = 100_000_000

_BLANKS = b" \t\r\n"

# words that a header has and little else: they tell one whose first bytes are damaged
_WORDS = (b'"data_offsets"', b'"__metadata__"')


def looks_like(head: bytes, size: int) -> bool:
    """Return whether a file of ``size`` bytes that begins with ``head`` is safetensors, or was meant to be.

    A header is JSON that begins with a brace; where the length or the brace is damaged, what follows tells.
    """
    if len(head) <= LENGTH_BYTES:
        return False
    length = int.from_bytes(head[:LENGTH_BYTES], "little")
    text = head[LENGTH_BYTES:]
    plausible = 2 <= length <= MAX_HEADER_BYTES
    start = text.lstrip(_BLANKS)[:1]
    if plausible and start == b"{":
        return _begins_like_json(text) or LENGTH_BYTES + length == size
    return any(word in text for word in _WORDS) and _is_header(text, length, size)


def _begins_like_json(text: bytes) -> bool:
    """Return whether an object begins here.

    It is a brace, then a quotation mark or the closing brace (or nothing).
    """
    inside = text.lstrip(_BLANKS)[1:].lstrip(_BLANKS)[:1]
    return inside in (b'"', b"}", b"")


def _is_header(text: bytes, length: int, size: int) -> bool:
    """Return whether text with a header's words begins like one, except for a damaged byte or a damaged length."""
    quoted = text[:1] == b"{" or text[1:2] in (b'"', b"}")
    return quoted or LENGTH_BYTES + length <= size
