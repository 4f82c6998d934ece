"""Strings of Python 2 that are not ASCII: which encoding they are in, only their writer knew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ckptdoctor.checkpoint import (
    Checkpoint,
    KeyPath,
    Mapping,
    Node,
    Opaque,
    Sequence,
    Special,
    Tensor,
    children,
    walk,
)
from ckptdoctor.facts.protocols import pickle_protocol

_MOST = 1000
_BYTES = ("b'", 'b"')  # how a key of bytes is spelt (formats.torch_objects.keys)


@dataclass(frozen=True, slots=True)
class OldString:
    """A string that ``torch.load`` cannot decode: where it is, whether it is a key, and what torch says."""

    path: KeyPath
    is_key: bool
    refusal: str


def undecodable(checkpoint: Checkpoint) -> list[OldString]:
    """The strings of Python 2 that are no UTF-8, as which ``torch.load`` reads them; at most a thousand.

    Protocol 2 and those before it know no bytes, so that bytes there are strings that Python 2 wrote, or what Python 3
    makes of bytes with the help of ``_codecs.encode``, which Python 2 never named.
    """
    protocol = pickle_protocol(checkpoint.container)
    if protocol is None or protocol > 2 or any(each.full == "_codecs.encode" for each in checkpoint.globals):
        return []
    if not _has_bytes(checkpoint.tree):
        return []
    found = []
    for path, is_key, value in _strings(checkpoint):
        refusal = _refusal(value)
        if refusal:
            found.append(OldString(path, is_key, refusal))
            if len(found) >= _MOST:
                break
    return found


def _has_bytes(tree: Node) -> bool:
    """Whether a value or a key may be bytes: in most files none is, and no paths need be made."""
    stack: list[Node] = [tree]
    while stack:
        node = stack.pop()
        for part, child in children(node):
            if type(child) is Tensor and type(part) is str:
                continue
            if isinstance(child, bytes) or (isinstance(part, Special) and part.text.startswith(_BYTES)):
                return True
            if isinstance(child, (Mapping, Sequence, Opaque)):
                stack.append(child)
    return isinstance(tree, bytes)


def _strings(checkpoint: Checkpoint) -> Iterator[tuple[KeyPath, bool, bytes]]:
    for path, node in walk(checkpoint.tree):
        if path and isinstance(path[-1], Special) and path[-1].text.startswith(_BYTES):
            key = _spelt(path[-1].text)
            if key is not None:
                yield path, True, key
        if isinstance(node, bytes):
            yield path, False, node


def _spelt(text: str) -> bytes | None:
    """The bytes that a key was (``formats.torch_objects.keys`` spells it as Python does)."""
    from ast import literal_eval

    try:
        value = literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, bytes) else None


def _refusal(value: bytes) -> str:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return str(error)
    return ""
