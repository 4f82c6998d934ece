"""The file was pickled by Python 2 and holds strings that are not UTF-8.

Meaning
    A Python 2 string is bytes without an encoding: names with accents, or the values of NumPy arrays and numbers.

Why it matters
    ``torch.load`` decodes them as UTF-8 and fails at the first that is not.

Symptoms
    'utf-8' codec can't decode byte 0xe9 in position 3: unexpected end of data
    'ascii' codec can't decode byte 0x8c in position 16: ordinal not in range(128)

Detection
    Protocols 0 to 2 do not have bytes, so bytes in such a pickle are Python 2 strings.

Repair
    ``ckptdoctor fix FILE --select P208 --unsafe-fixes`` decodes them as text, like ``torch.load(FILE,
    encoding="latin1")``. Unsafe: no byte is lost, but only their writer knew whether they are Latin-1. The values of
    NumPy arrays and numbers are not text: they become bytes, which is safe.
"""

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
from ckptdoctor.edits import Fix
from ckptdoctor.facts.numpy_values import BYTES, array_values, of_python_2
from ckptdoctor.findings import Location, Severity
from ckptdoctor.noun import noun
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import CHECK, Message, Way, Weight
from ckptdoctor.rules.pickle.repickling import can_be_repickled, repickle_fix
from ckptdoctor.rules.when import more_than_tensors


def _of_python_2(data: bytes) -> bytes:
    """Return the file with the text "abcd" as a string of Python 2 that ends in an accent of Latin-1."""
    return data.replace(b"X\x04\x00\x00\x00abcd", b"U\x04caf\xe9")


MESSAGES = (
    Message(
        ("'ascii' codec can't decode byte",),
        "the pickle was written by Python 2, whose strings are bytes that do not decode as ASCII",
        (Way("load it with", 'torch.load(path, encoding="latin1")'), CHECK),
        among=("torch.load", "serialization", "pickle", "joblib"),
    ),
    Message(
        ("'utf-8' codec can't decode byte",),
        "a string in the pickle is not UTF-8: Python 2 wrote it, or the file was opened as text",
        (CHECK, Way("if Python 2 wrote it", 'torch.load(path, encoding="latin1")')),
        among=("torch.load", "serialization", "pickle", "joblib"),
        weight=Weight.ECHO,
    ),
)
SICK = (
    Example("a text in Latin-1", {"note": "abcd", "w": T((3,))}, "torch legacy", damage=_of_python_2),
    Example("a key in Latin-1", {"abcd": 3, "w": T((3,))}, "torch legacy", damage=_of_python_2),
)
HEALTHY = (
    Example("texts of Python 3", {"note": "café", "café": 3, "w": T((3,))}, "torch legacy"),
    Example("bytes of Python 3", {"raw": b"caf\xe9", "w": T((3,))}),
)


@rule("P208", "py2-strings", Severity.ERROR, when=more_than_tensors)
def py2_strings(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report strings that are not UTF-8."""
    found = undecodable(checkpoint)
    if not found:
        return
    keys = sum(each.is_key for each in found)
    which = f", {wording.plural(keys, 'of them a key', 'of them keys')}" if keys else ""
    yield Problem(
        message=f"{wording.plural(len(found), 'string')} of Python 2 cannot be read as UTF-8{which}",
        cause="Python 2 wrote them as bytes in an unknown encoding, and torch.load takes them for UTF-8.",
        torch_says=(found[0].refusal,),
        advice='If you trust the file: torch.load(FILE, weights_only=False, encoding="latin1") reads it.',
        keys=tuple([each.path for each in found]),
        location=Location(path=found[0].path),
        fix=_fix(checkpoint, all(each.is_number for each in found)),
    )


def _fix(checkpoint: Checkpoint, numbers: bool) -> Fix | None:
    if not can_be_repickled(checkpoint):
        return None
    if numbers:
        return repickle_fix(checkpoint, "convert the values of NumPy arrays to bytes", "P208")
    return repickle_fix(checkpoint, "decode strings as Latin-1 text", "P208", encoding="latin1")


# ---- the strings, wherever they are


_MOST = 1000


@noun
class OldString:
    """A string that ``torch.load`` cannot decode: where it is, whether it is a key, and what torch says.

    ``is_number`` says that it is the values of a NumPy array or number, which are not text.
    """

    path: KeyPath
    is_key: bool
    refusal: str
    is_number: bool = False


def undecodable(checkpoint: Checkpoint) -> list[OldString]:
    """Return the strings of Python 2 that are not UTF-8, as ``torch.load`` reads them; at most a thousand.

    Protocols up to 2 do not have bytes, so that bytes there are strings that Python 2 wrote, or what Python 3 makes of
    bytes with the help of ``_codecs.encode``, which Python 2 never named.
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


def _has_bytes(tree: Node) -> bool:
    """Return whether a value or a key may be bytes: in most files none is, and no paths need be made."""
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
    """Yield bytes, and keys of bytes with the values under them.

    Before the bytes in it comes an array or number of NumPy.
    """
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
    """Return where the values of an array or number are."""
    if isinstance(node.state, Sequence):
        return (*path, Special(".state"), len(node.state.items) - 1)
    return (*path, Special(f"({len(node.arguments) - 1})"))


def _spelt(text: str) -> bytes | None:
    """Return the bytes that a key was (``formats.torch.read.objects`` spells it as Python does)."""
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
