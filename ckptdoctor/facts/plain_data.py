"""What an object in a checkpoint is as plain data, worked out from what the pickle says and never by making it.

Only objects whose whole content the pickle spells out are converted: a Namespace is its attributes, a path its parts,
a NumPy number the bytes of one element, a date its fields. Anything else raises NotPlainError.
"""

from __future__ import annotations

import struct
from typing import Any

from ckptdoctor.checkpoint import Mapping, Node, Opaque, Sequence
from ckptdoctor.facts.globals import modern

# objects that are nothing but their attributes
_RECORDS = frozenset({"argparse.Namespace", "types.SimpleNamespace"})
_DICTS = frozenset({"dict", "collections.OrderedDict", "collections.defaultdict", "collections.Counter"})
_POSIX = frozenset({"PosixPath", "PurePosixPath"})
_WINDOWS = frozenset({"WindowsPath", "PureWindowsPath"})
_PATHS = _POSIX | _WINDOWS | {"Path", "PurePath"}
# NumPy's codes of one element (kind and bytes) as the struct module writes them; half precision is "e"
_ELEMENTS = {
    "f8": "d",
    "f4": "f",
    "f2": "e",
    "i8": "q",
    "i4": "i",
    "i2": "h",
    "i1": "b",
    "u8": "Q",
    "u4": "I",
    "u2": "H",
    "u1": "B",
    "b1": "?",
}
_DEPTH = 100  # nesting that no configuration has


class NotPlainError(Exception):
    """The value cannot be said in plain data without loss; the text names what stands in the way."""


def as_plain(node: Node, depth: int = 0) -> object:
    """The value as None, bool, int, float, str and bytes, and lists, tuples and dicts of such.

    Raises NotPlainError for tensors, sets, cycles, odd dict keys, and objects that are not understood.
    """
    if node is None or isinstance(node, (bool, int, float, str, bytes)):
        return node
    if depth > _DEPTH:
        raise NotPlainError(f"it is nested more than {_DEPTH} levels deep")
    if isinstance(node, Mapping):
        return _dict(node, depth)
    if isinstance(node, Sequence) and node.kind in ("list", "tuple"):
        items = [as_plain(item, depth + 1) for item in node.items]
        return items if node.kind == "list" else tuple(items)
    if isinstance(node, Opaque):
        return _object(node, depth)
    raise NotPlainError(f"it holds {_what(node)}")


def is_path(module: str, name: str) -> bool:
    """Whether this is a class of pathlib, which was a package of its own (``pathlib._local``) in Python 3.13."""
    return module in ("pathlib", "pathlib._local") and name in _PATHS


def _what(node: Node) -> str:
    if isinstance(node, Sequence):
        return f"a {node.kind}"
    return {"Tensor": "a tensor", "Named": "a class or function"}.get(
        type(node).__name__, "something that was not read"
    )


def _dict(node: Mapping, depth: int) -> dict[str | int, object]:
    if node.kind not in _DICTS:
        raise NotPlainError(f"it holds a {node.kind}")
    if node.attributes is not None and node.attributes.entries:
        raise NotPlainError("it holds a dict with attributes of its own")
    plain: dict[str | int, object] = {}
    for part, child in node.entries:
        if not isinstance(part, (str, int)):
            raise NotPlainError("it holds a dict whose keys are neither text nor integers")
        plain[part] = as_plain(child, depth + 1)
    return plain


def _object(node: Opaque, depth: int) -> object:
    module, _, name = node.class_name.rpartition(".")
    module, name = modern(module, name)
    if f"{module}.{name}" in _RECORDS:
        return _record(node, depth)
    if is_path(module, name):
        return _path(node, name)
    if module in ("numpy._core.multiarray", "numpy.core.multiarray") and name == "scalar":
        return _number(node)
    if module == "datetime" and name in ("datetime", "date", "time"):
        return _date(node, name)
    raise NotPlainError(f"it holds an object of the class {module}.{name}")


def _record(node: Opaque, depth: int) -> object:
    if node.arguments or node.items or node.entries or not isinstance(node.state, (Mapping, type(None))):
        raise NotPlainError(f"its {node.class_name} was not written in the usual way")
    return {} if node.state is None else as_plain(node.state, depth + 1)


def _path(node: Opaque, name: str) -> str:
    from pathlib import PurePosixPath, PureWindowsPath

    if node.state is not None or not all(isinstance(part, str) for part in node.arguments):
        raise NotPlainError("its path was not written in the usual way")
    kind = PureWindowsPath if name in _WINDOWS else PurePosixPath
    return str(kind(*[str(part) for part in node.arguments]))


def _number(node: Opaque) -> object:
    if len(node.arguments) != 2 or node.state is not None or not isinstance(node.arguments[0], Opaque):
        raise NotPlainError("its NumPy number was not written in the usual way")
    kind, order = _element(node.arguments[0])
    data = _bytes(node.arguments[1])
    if kind.startswith("U"):
        return data.decode("utf-32-be" if order == ">" else "utf-32-le", "surrogatepass").rstrip("\0")
    code = _ELEMENTS.get(kind)
    if code is None or len(data) != struct.calcsize(f"={code}"):
        raise NotPlainError(f"it holds a NumPy value of the kind {kind}")
    value: Any = struct.unpack(f"{'>' if order == '>' else '<'}{code}", data)[0]
    return value


def _element(dtype: Opaque) -> tuple[str, str]:
    """Kind and byte order of a pickled ``numpy.dtype``: called with ("f8", False, True), its state is (3, "<", …)."""
    kind = dtype.arguments[0] if dtype.arguments else None
    state = dtype.state.items if isinstance(dtype.state, Sequence) else ()
    order = state[1] if len(state) > 1 else "|"
    if dtype.class_name != "numpy.dtype" or not isinstance(kind, str) or not isinstance(order, str):
        raise NotPlainError("it holds a NumPy value of a kind that is not understood")
    return kind, order


def _bytes(node: Node) -> bytes:
    """Bytes as protocol 3 and later write them, or as ``_codecs.encode(text, "latin1")`` does in protocol 2."""
    if isinstance(node, bytes):
        return node
    if isinstance(node, Opaque) and node.class_name == "_codecs.encode" and len(node.arguments) == 2:
        text, encoding = node.arguments
        if isinstance(text, str) and encoding in ("latin1", "latin-1"):
            return text.encode("latin-1", "replace")
    raise NotPlainError("it holds bytes that were not written in the usual way")


def _date(node: Opaque, name: str) -> str:
    import datetime

    if len(node.arguments) != 1 or node.state is not None:  # a second argument is a time zone
        raise NotPlainError(f"it holds a {name} with a time zone")
    try:
        made: datetime.datetime | datetime.date | datetime.time = getattr(datetime, name)(_bytes(node.arguments[0]))
    except (TypeError, ValueError) as error:
        raise NotPlainError(f"it holds a {name} that makes no sense") from error
    return made.isoformat()
