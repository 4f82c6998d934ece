"""Writes contents as ``torch.save`` pickles them: protocol 2, opcode for opcode what Python's own pickler writes.

Equal texts count as one object, as constants of a program are; the keys of storages never do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Mapping as AnyMapping
from functools import partial
from typing import Union

from ckptdoctor.checkpoint import Mapping, Named, Node, Tensor, show_path
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.keypath import KeyPath, UnknownKeyError, key_of
from ckptdoctor.errors import RefusedError
from ckptdoctor.pickles import canonical
from ckptdoctor.pickles import opcodes as op

PROTOCOL = 2
DICTS = ("dict", "collections.OrderedDict")
SETS = ("set", "frozenset")
LISTS = ("list", "tuple", "torch.Size", *SETS)

_BATCH = 1000  # entries that the pickler sets at once
_DEEPEST = 200
_MARK, _STOP, _REDUCE = b"(", b".", b"R"


_Value = Union[Node, object]


def pickled(tree: Node, names: AnyMapping[str, str]) -> bytes:
    """Return the pickle of the contents; ``names`` are what their storages are called in the archive, by their keys.

    Raises RefusedError for anything that is neither plain nor a strided tensor.
    """
    writer = _Pickler(names)
    writer.save(tree, ())
    return bytes((op.PROTO, PROTOCOL)) + b"".join(writer.out) + _STOP


def dtype_of(tensor: Tensor) -> str | None:
    """Return what torch calls the dtype, or None where it has none for it."""
    name = tensor.dtype.name
    return None if name.startswith("float6_") or name == "float4_e2m1fn" else name


def unsayable(node: Node) -> str | None:
    """Return why this node itself, whatever is in it, cannot be written, or None where it can."""
    if isinstance(node, Mapping):
        if node.kind not in DICTS or (node.kind == "dict" and node.attributes is not None):
            return f"is a {node.kind}"
        try:
            for part, _ in node.entries:
                key_of(part)
        except UnknownKeyError as error:
            return f"has the key {error}, which is not plain"
        return None
    if isinstance(node, Items):
        return None if node.kind in LISTS else f"is a {node.kind}"
    if isinstance(node, Named):
        return None if _is_dtype(node.name) else f"is {node.name}, a class or function"
    if isinstance(node, Tensor):
        return None if dtype_of(node) is not None else f"is {node.dtype.name}, which torch does not have"
    if node is None or isinstance(node, (bool, int, float, str, bytes)):
        return None
    name = getattr(node, "class_name", None)
    return f"is an object of the class {name}" if name else "refers to an object that contains it, or was not read"


def _is_dtype(name: str) -> bool:
    return name.startswith("torch.") and name[6:] in BY_NAME


class _Pickler:
    """What was written so far, and what the memo holds."""

    def __init__(self, names: AnyMapping[str, str]) -> None:
        self.out: list[bytes] = []
        self._storage_names = names
        self._count = 0
        self._texts: dict[str, bytes] = {}
        self._keys: dict[str, bytes] = {}
        self._names: dict[str, bytes] = {}

    def save(self, node: _Value, path: KeyPath) -> None:
        """Write one value and everything in it."""
        if node is None or isinstance(node, (bool, int, float)):
            self.out.append(canonical.constant(node, PROTOCOL))
        elif isinstance(node, str):
            self._text(node, self._texts)
        elif isinstance(node, bytes):
            self._bytes(node)
        elif isinstance(node, Tensor):
            self._tensor(node)
        elif len(path) > _DEEPEST:
            raise RefusedError(f"{show_path(path[:8])} is nested more than {_DEEPEST} levels deep.")
        elif isinstance(node, Mapping):
            self._mapping(node, path)
        elif isinstance(node, Items):
            self._items(node, path)
        elif isinstance(node, tuple):
            self._tuple([partial(self.save, each, path) for each in node])
        elif isinstance(node, Named) and _is_dtype(node.name):
            self._named(node.name)
        else:
            raise RefusedError(f"{show_path(path)} cannot be written to a torch file.")

    # ---- containers

    def _mapping(self, node: Mapping, path: KeyPath) -> None:
        if node.kind == "dict":
            self._made(b"}")
        else:
            self._called(node.kind, [])
        pairs = [(key_of(part), child, (*path, part)) for part, child in node.entries]
        for at in range(0, len(pairs), _BATCH):
            batch = pairs[at : at + _BATCH]
            # CPython sets a lone entry without a mark, but not behind others in a plain dict
            lone = len(batch) == 1 and (node.kind != "dict" or len(pairs) == 1)
            self.out += [] if lone else [_MARK]
            for key, child, place in batch:
                self.save(key, path)
                self.save(child, place)
            self.out.append(b"s" if lone else b"u")
        if node.attributes is not None:
            self.save(node.attributes, path)
            self.out.append(b"b")

    def _items(self, node: Items, path: KeyPath) -> None:
        values = [partial(self.save, each, (*path, at)) for at, each in enumerate(node.items)]
        if node.kind == "list":
            self._list(values)
        elif node.kind == "tuple":
            self._tuple(values)
        elif node.kind == "torch.Size":
            self._called("torch.Size", [lambda: self._tuple(values)])
        else:
            self._called(f"__builtin__.{node.kind}", [lambda: self._list(values)])

    def _list(self, values: Sequence[Callable[[], None]]) -> None:
        self._made(b"]")
        for at in range(0, len(values), _BATCH):
            batch = values[at : at + _BATCH]
            self.out += [_MARK] if len(values) > 1 else []
            for write in batch:
                write()
            self.out.append(b"e" if len(values) > 1 else b"a")

    def _tuple(self, values: Sequence[Callable[[], None]]) -> None:
        if not values:
            self.out.append(b")")
            return
        self.out += [_MARK] if len(values) > 3 else []
        for write in values:
            write()
        self._made(b"t" if len(values) > 3 else bytes((op.TUPLE1 + len(values) - 1,)))

    # ---- values

    def _text(self, value: str, memo: dict[str, bytes]) -> None:
        if value in memo:
            self.out.append(memo[value])
            return
        self.out.append(canonical.text_bytes(op.BINUNICODE, value))
        memo[value] = self._put()

    def _bytes(self, value: bytes) -> None:
        text = value.decode("latin1")  # of b"" torch.save writes a call of bytes, which torch.load then refuses
        self._called("_codecs.encode", [lambda: self._text(text, {}), lambda: self._text("latin1", self._texts)])

    def _named(self, name: str) -> None:
        if name in self._names:
            self.out.append(self._names[name])
            return
        module, _, own = name.rpartition(".")
        self.out.append(f"c{module}\n{own}\n".encode())
        self._names[name] = self._put()

    def _called(self, name: str, arguments: Sequence[Callable[[], None]]) -> None:
        self._named(name)
        self._tuple(arguments)
        self._made(_REDUCE)

    def _made(self, code: bytes) -> None:
        self.out.append(code)
        self._put()

    def _put(self) -> bytes:
        """Remember what was just written; what fetches it again."""
        self.out.append(canonical.put(self._count, PROTOCOL))
        self._count += 1
        return canonical.get(self._count - 1, PROTOCOL)

    # ---- tensors

    def _tensor(self, tensor: Tensor) -> None:
        if not tensor.is_parameter:
            self._view(tensor, tensor.requires_grad)
            return
        grad = canonical.constant(tensor.requires_grad, PROTOCOL)
        arguments = [lambda: self._view(tensor, False), lambda: self.out.append(grad), self._hooks]
        self._called("torch._utils._rebuild_parameter", arguments)

    def _view(self, tensor: Tensor, grad: bool) -> None:
        untyped = tensor.dtype.storage_class is None
        arguments: list[Callable[[], None]] = [
            lambda: self._storage(tensor),
            lambda: self.out.append(canonical.integer_bytes(tensor.offset, PROTOCOL)),
            lambda: self._numbers(tensor.shape),
            lambda: self._numbers(tensor.stride),
            lambda: self.out.append(canonical.constant(grad, PROTOCOL)),
            self._hooks,
        ]
        if untyped:
            arguments.append(lambda: self._named(f"torch.{dtype_of(tensor)}"))
        self._called(f"torch._utils._rebuild_tensor_v{3 if untyped else 2}", arguments)

    def _storage(self, tensor: Tensor) -> None:
        storage, named = tensor.storage, tensor.dtype.storage_class
        assert storage is not None
        kind = "torch.storage.UntypedStorage" if named is None else f"torch.{named}"
        count = storage.nbytes if named is None else storage.nbytes * 8 // tensor.dtype.bits
        parts: list[Callable[[], None]] = [
            lambda: self._text("storage", self._texts),
            lambda: self._named(kind),
            lambda: self._text(self._storage_names[storage.key], self._keys),
            lambda: self._text("cpu", self._texts),
            lambda: self.out.append(canonical.integer_bytes(count, PROTOCOL)),
        ]
        self._tuple(parts)
        self.out.append(b"Q")

    def _numbers(self, values: tuple[int, ...]) -> None:
        self._tuple([partial(self.out.append, canonical.integer_bytes(each, PROTOCOL)) for each in values])

    def _hooks(self) -> None:
        self._called("collections.OrderedDict", [])
