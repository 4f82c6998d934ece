"""Writes the Python that loads what is at a place of a checkpoint, and that works as it is written."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ckptdoctor.checkpoint import KeyPath, Mapping, Node, Opaque, Part, Sequence, Special, children, show_path
from ckptdoctor.checkpoint.dtypes import NUMPY_BUFFERS, NUMPY_MAKERS, NUMPY_SCALARS
from ckptdoctor.errors import UsageError
from ckptdoctor.findings import Finding, Severity
from ckptdoctor.rendering.escape import escape

_OURS = "ckptdoctor.load({})"
_CALLS = {"torch zip": 'torch.load({}, map_location="cpu")', "torch legacy": 'torch.load({}, map_location="cpu")'}
_CALLS["safetensors"] = "safetensors.torch.load_file({})"
# errors of the file, its container and its pickles: whoever reads it meets them, whatever it is loaded into
_OF_READING = ("C", "F", "M", "P", "A712")
_OF_PICKLES = "P"  # weights_only=True takes offence at what is only a warning, since others may load it
_NAME = "C101"  # the name of the file alone, which safetensors does not look at
_UNORDERED = ("set", "frozenset")
_PLAIN = frozenset((*NUMPY_SCALARS, *NUMPY_MAKERS, *NUMPY_BUFFERS, "torch.device"))  # what is loaded as one value


def python(path: str, format: str, tree: Node = None, place: KeyPath = (), *, refused: bool = False) -> str:
    """Return the call that loads what is at a place: as the field does, or with ckptdoctor where that is ``refused``.

    Raises UsageError where nothing that loads the file gives that by itself.
    """
    steps, plain = _steps(tree, place)
    call = _CALLS.get(format.partition(",")[0], _OURS) if plain and not refused else _OURS
    return call.format(_literal(path)) + steps


def is_refused(findings: Iterable[Finding], format: str) -> bool:
    """Return whether torch.load, or safetensors, refuses the file: not what comes of it is refused later."""
    for each in findings:
        reading = each.severity is Severity.ERROR and each.code.startswith(_OF_READING)
        if reading and not (each.code == _NAME and format == "safetensors"):
            return True
        if each.code.startswith(_OF_PICKLES) and each.torch_says:
            return True
    return False


def _steps(tree: Node, place: KeyPath) -> tuple[str, bool]:
    """Return what follows the call, and whether that is the same for what torch loads: no object is on the way."""
    found, plain, node = "", True, tree
    for depth, part in enumerate(place):
        step = _step(node, part)
        if step is None:
            here = escape(show_path(place[: depth + 1]))
            raise UsageError(f"{here} cannot be loaded by itself: no line of Python was copied.")
        plain &= not isinstance(node, Opaque) and (isinstance(part, (str, int)) or step.startswith("."))
        found += step
        node = next(child for each, child in children(node) if each == part and type(each) is type(part))
    return found, plain


def _step(node: Node, part: Part) -> str | None:
    """Return what leads from a node to one of its children, in what ``ckptdoctor.load`` makes of it."""
    if isinstance(node, Mapping):
        attributes = node.attributes.entries if node.attributes is not None else ()
        own = next((each for each, _ in attributes if Special(f".{each}") == part), None)
        return _key(part, [each for each, _ in node.entries]) if own is None else f".__dict__[{_literal(str(own))}]"
    if isinstance(node, Sequence):
        return None if node.kind in _UNORDERED else f"[{part}]"
    if not isinstance(node, Opaque) or node.class_name in _PLAIN:
        return None
    return _of_object(node, part)


def _of_object(node: Opaque, part: Part) -> str | None:
    """Return the same for an object, which comes as a record of what the file says of it."""
    arguments = [Special(f"({index})") for index in range(len(node.arguments))]
    if part in arguments:
        return f".arguments[{arguments.index(part)}]"
    if isinstance(node.state, Mapping) and any(_is(each, part) for each, _ in children(node.state)):
        step = _step(node.state, part)
        return None if step is None else f".state{step}"
    if part == Special(".state") and node.state is not None:
        return ".state"
    if isinstance(part, int) and part < len(node.items):
        return f".items[{part}]"
    step = _key(part, [each for each, _ in node.entries])
    return None if step is None else f".entries{step}"


def _key(part: Part, others: list[Part]) -> str | None:
    """Return how a dict is asked for a key; one that is neither text nor number goes by how it is shown."""
    if not isinstance(part, Special):
        return f"[{_literal(part) if isinstance(part, str) else part}]"
    same = [each for each in others if (each.text if isinstance(each, Special) else each) == part.text]
    return f"[{_literal(part.text)}]" if len(same) == 1 else None


def _is(one: Part, other: Part) -> bool:
    return one == other and type(one) is type(other)


def _literal(text: str) -> str:
    """Return a text as Python writes it, in double quotes as people type it."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else ascii(text)
