"""Writes what are no tensors as JSON: every plain value exactly, and objects by what the file says of them.

Numbers, texts, booleans, None, lists and dicts with text keys are what JSON calls them. Everything else is an object
with one key that begins with ``$``: ``{"$tuple": […]}``, ``{"$float": "nan"}``, ``{"$bytes": base64}``,
``{"$dict": kind, "entries": [[key, value], …]}``, ``{"$object": class, …}``, ``{"$tensor": name in the file}``.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping as AnyMapping
from math import isfinite

from ckptdoctor.checkpoint import Cycle, Mapping, Named, Node, Opaque, Sequence, Tensor, show_path
from ckptdoctor.checkpoint.keypath import KeyPath, UnknownKeyError, key_of
from ckptdoctor.errors import RefusedError

SCHEMA = "ckptdoctor/extra/1"
_EXACT = 1 << 63  # larger integers are written as text: most readers of JSON have 64 bits


def sidecar(contents: Node, metadata: AnyMapping[str, str], names: AnyMapping[KeyPath, str], source: str) -> bytes:
    """Return the file's bytes.

    ``names`` are the names of the tensors that were written, by their paths in ``contents``.

    Raises RefusedError for what was not read, and so cannot be kept.
    """
    made: dict[str, object] = {"schema": SCHEMA, "source": source}
    if metadata:
        made["metadata"] = dict(metadata)
    if contents is not None:
        made["contents"] = encoded(contents, names, ())
    return (json.dumps(made, indent=1, allow_nan=False) + "\n").encode("ascii")


def encoded(node: Node, names: AnyMapping[KeyPath, str], path: KeyPath) -> object:
    """Return one value and everything in it."""
    if isinstance(node, Mapping):
        return _mapping(node, names, path)
    if isinstance(node, Sequence):
        items = [encoded(each, names, (*path, at)) for at, each in enumerate(node.items)]
        return items if node.kind == "list" else {f"${node.kind}": items}
    if isinstance(node, Opaque):
        return _object(node, names, path)
    if isinstance(node, Tensor):
        return {"$tensor": names[node.path]}
    if isinstance(node, Named):
        return {"$name": node.name}
    if isinstance(node, Cycle):
        return {"$cycle": show_path(node.path)}
    if node is None or isinstance(node, (bool, int, float, str, bytes)):
        return plain(node)
    raise RefusedError(f"{show_path(path)} was not read ({node.reason}), so it cannot be kept.")


def plain(value: object) -> object:
    """Return a single value as JSON says it."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if abs(value) < _EXACT else {"$int": hex(value)}
    if isinstance(value, float):
        return value if isfinite(value) else {"$float": repr(value)}
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode("ascii")}
    assert isinstance(value, tuple)
    return {"$tuple": [plain(each) for each in value]}


def _mapping(node: Mapping, names: AnyMapping[KeyPath, str], path: KeyPath) -> object:
    entries = [(part, encoded(child, names, (*path, part))) for part, child in node.entries]
    simple = all(isinstance(part, str) and not part.startswith("$") for part, _ in entries)
    if node.kind == "dict" and simple and node.attributes is None:
        return dict(entries)
    made: dict[str, object] = {"$dict": node.kind, "entries": [[_key(part), value] for part, value in entries]}
    if node.attributes is not None:
        made["attributes"] = encoded(node.attributes, names, path)
    return made


def _key(part: object) -> object:
    try:
        return plain(key_of(part))  # type: ignore[arg-type]  # what entries have
    except UnknownKeyError as error:
        return {"$key": str(error)}


def _object(node: Opaque, names: AnyMapping[KeyPath, str], path: KeyPath) -> object:
    made: dict[str, object] = {"$object": node.class_name}
    if node.arguments:
        made["arguments"] = [encoded(each, names, path) for each in node.arguments]
    if node.state is not None:
        made["state"] = encoded(node.state, names, path)
    if node.items:
        made["items"] = [encoded(each, names, path) for each in node.items]
    if node.entries:
        made["entries"] = [[_key(part), encoded(child, names, path)] for part, child in node.entries]
    return made
