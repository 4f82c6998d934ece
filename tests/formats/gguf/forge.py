"""Writes GGUF files by hand, as the format's description says, so that every field can be made wrong."""

from __future__ import annotations

import struct

CODES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "I32": 26, "BF16": 30}
_NUMBERS = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}


def text(value: str, order: str = "<") -> bytes:
    """A text, behind its length."""
    raw = value.encode()
    return struct.pack(f"{order}Q", len(raw)) + raw


def value(held: object, order: str = "<") -> bytes:
    """A value of the metadata, behind its type."""
    if isinstance(held, str):
        return struct.pack(f"{order}I", 8) + text(held, order)
    if isinstance(held, list):
        inner = [value(each, order) for each in held]
        kind = inner[0][:4] if inner else struct.pack(f"{order}I", 8)
        return struct.pack(f"{order}I", 9) + kind + struct.pack(f"{order}Q", len(held)) + b"".join(i[4:] for i in inner)
    kind, code = _NUMBERS[type(held)]
    return struct.pack(f"{order}I{code}", kind, held)


def entry(name: str, shape: tuple[int, ...], code: int, offset: int, order: str = "<") -> bytes:
    """What the header says of a tensor."""
    sizes = struct.pack(f"{order}{len(shape)}Q", *reversed(shape))
    return text(name, order) + struct.pack(f"{order}I", len(shape)) + sizes + struct.pack(f"{order}IQ", code, offset)


def gguf_bytes(
    tensors: dict[str, tuple[str | int, tuple[int, ...], bytes]],
    metadata: dict[str, object] | None = None,
    *,
    order: str = "<",
    version: int = 3,
    alignment: int = 32,
    step: int = 0,
) -> bytes:
    """A file of tensors (type, shape, bytes) by name; with ``step`` they are so far apart, and to be written later."""
    pairs = {"general.architecture": "llama", **(metadata or {})}
    head = b"GGUF" + struct.pack(f"{order}IQQ", version, len(tensors), len(pairs))
    head += b"".join(text(key, order) + value(held, order) for key, held in pairs.items())
    data = bytearray()
    for number, (name, (kind, shape, raw)) in enumerate(tensors.items()):
        data += bytes(-len(data) % alignment)
        begin = number * step or len(data)
        head += entry(name, shape, kind if isinstance(kind, int) else CODES[kind], begin, order)
        data += raw
    return head + bytes(-len(head) % alignment) + bytes(data)
