"""Calls that only make a plain value, told apart from objects of unknown classes."""

from __future__ import annotations

from ckptdoctor.checkpoint import Named
from ckptdoctor.formats.torch.read.arguments import layout_name
from ckptdoctor.formats.torch.read.values import bare, call, full_name, text
from ckptdoctor.pickles.graph import Made, Text, Value


def plain_value(node: Made) -> bytes | Named | None:
    """The value that a call gives where that can be told without calling: bytes as protocol 2 writes them, layouts."""
    if node.steps is not None and any(step.payload for step in node.steps):
        return None
    callee, arguments, keywords = call(node)
    name = full_name(callee)
    if name == "_codecs.encode" and len(arguments) == 2:
        return _encoded(arguments)
    if name == "builtins.bytes" and not arguments and keywords is None:
        return b""
    if name == "torch.serialization._get_layout":
        layout = layout_name(node)
        return None if layout is None else Named(f"torch.{layout}")
    return None


def _encoded(arguments: list[Value]) -> bytes | None:
    value = bare(arguments[0])
    if not isinstance(value, Text) or not isinstance(value.value, str) or text(arguments[1]) != "latin1":
        return None
    try:
        return value.value.encode("latin1")
    except UnicodeEncodeError:
        return None
