"""Arguments of the calls that rebuild tensors, as text, names and dicts."""

from __future__ import annotations

from ckptdoctor.formats.torch.read.steps import filling
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, full_name, integer, text
from ckptdoctor.pickles.graph import Made, Text, Value

Details = tuple[tuple[str, "bool | int | float | str"], ...]


class NotOurs(Exception):
    """The call has another form than torch gives it: the object is shown as it is."""


def plain_dict(value: Value) -> dict[str, Value]:
    """The text keys of a dict with their values; empty for anything else."""
    value = bare(value)
    if type(value) is not Made:
        return {}
    found = filling(value)
    return {name: item for key, item in zip(found.keys, found.values, strict=False) if (name := text(key)) is not None}


def layout_name(value: Value) -> str | None:
    """``sparse_csr`` for ``torch.serialization._get_layout("torch.sparse_csr")``; None for anything else."""
    value = bare(value)
    if type(value) is not Made or value.op not in CALLS:
        return None
    callee, arguments, _ = call(value)
    if full_name(callee) != "torch.serialization._get_layout" or len(arguments) != 1:
        return None
    name = text(arguments[0])
    return None if name is None else name.removeprefix("torch.")


def device_name(value: Value) -> str:
    """``cuda:1`` for that text, and for ``torch.device("cuda", 1)``."""
    value = bare(value)
    if isinstance(value, Text):
        return text(value) or ""
    if type(value) is Made and value.op in CALLS:
        callee, arguments, _ = call(value)
        if full_name(callee) == "torch.device" and arguments:
            kind, number = text(arguments[0]) or "", integer(arguments[1]) if len(arguments) > 1 else None
            return kind if number is None or not 0 <= number < 1 << 15 else f"{kind}:{number}"
    raise NotOurs
