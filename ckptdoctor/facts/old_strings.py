"""Strings of Python 2 that are no UTF-8: which encoding they are in, only their writer knew."""

from __future__ import annotations

from collections.abc import Iterator

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
from ckptdoctor.noun import noun

_MOST = 1000
_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")
BYTES = ("b'", 'b"')  # how a key of bytes is spelt (formats.torch.read.objects)


@noun
class OldString:
    """A string that ``torch.load`` cannot decode: where it is, whether it is a key, and what torch says.

    ``is_number`` says that it is the values of a NumPy array or number, which are no text.
    """

    path: KeyPath
    is_key: bool
    refusal: str
    is_number: bool = False


def undecodable(checkpoint: Checkpoint) -> list[OldString]:
    """The strings of Python 2 that are no UTF-8, as which ``torch.load`` reads them; at most a thousand.

    Protocol 2 and those before it know no bytes, so that bytes there are strings that Python 2 wrote, or what Python 3
    makes of bytes with the help of ``_codecs.encode``, which Python 2 never named.
    """
    if not of_python_2(checkpoint) or not _has_bytes(checkpoint.tree):
        return []
    found = []
    values: set[KeyPath] = set()
    for path, node, value in _strings(checkpoint):
        if isinstance(node, Opaque):
            values.add(_place_of_values(node, path))
            continue
        refusal = _refusal(value)
        if refusal:
            found.append(OldString(path, not isinstance(node, bytes), refusal, path in values))
            if len(found) >= _MOST:
                break
    return found


def of_python_2(checkpoint: Checkpoint) -> bool:
    """Whether bytes in the tree are strings of Python 2."""
    protocol = pickle_protocol(checkpoint.container)
    return protocol in (0, 1, 2) and all(each.full != "_codecs.encode" for each in checkpoint.globals)


def array_values(node: Opaque) -> bytes | None:
    """The values of a NumPy array or number that Python 2 wrote as a string; None for anything else."""
    module, _, name = node.class_name.rpartition(".")
    if module not in _NUMPY:
        return None
    held: tuple[Node, ...] = ()
    if name == "scalar":
        held = node.arguments if len(node.arguments) == 2 else ()
    elif name == "_reconstruct" and isinstance(node.state, Sequence) and len(node.state.items) == 5:
        held = node.state.items
    value = held[-1] if held else None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return value if isinstance(value, bytes) else None


def _has_bytes(tree: Node) -> bool:
    """Whether a value or a key may be bytes: in most files none is, and no paths need be made."""
    stack: list[Node] = [tree]
    while stack:
        node = stack.pop()
        for part, child in children(node):
            if type(child) is Tensor and type(part) is str:
                continue
            if isinstance(child, bytes) or (isinstance(part, Special) and part.text.startswith(BYTES)):
                return True
            if isinstance(child, (Mapping, Sequence, Opaque)):
                stack.append(child)
    return isinstance(tree, bytes)


def _strings(checkpoint: Checkpoint) -> Iterator[tuple[KeyPath, Node, bytes]]:
    """Bytes, and keys of bytes with the values under them; before the bytes in it, an array or number of NumPy."""
    for path, node in walk(checkpoint.tree):
        if path and isinstance(path[-1], Special) and path[-1].text.startswith(BYTES):
            key = _spelt(path[-1].text)
            if key is not None:
                yield path, None, key
        if isinstance(node, bytes):
            yield path, node, node
        elif isinstance(node, Opaque) and array_values(node) is not None:
            yield path, node, b""


def _place_of_values(node: Opaque, path: KeyPath) -> KeyPath:
    """Where the values of an array or number stand."""
    if isinstance(node.state, Sequence):
        return (*path, Special(".state"), len(node.state.items) - 1)
    return (*path, Special(f"({len(node.arguments) - 1})"))


def _spelt(text: str) -> bytes | None:
    """The bytes that a key was (``formats.torch.read.objects`` spells it as Python does)."""
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
