"""Writes the ``.metadata`` of torch.distributed.checkpoint: a pickle of its records, which are named, not imported.

The records are those of ``torch.distributed.checkpoint.metadata``, as torch 2.1 to 2.13 reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Union

from ckptdoctor.noun import noun
from ckptdoctor.pickles import canonical
from ckptdoctor.pickles import opcodes as op

Steps = tuple[str | int, ...]  # on the way to a value in nested contents

_PROTOCOL = 2
_RECORDS = "torch.distributed.checkpoint.metadata"
_PLACES = "torch.distributed.checkpoint.filesystem"
_VERSION = "1.0.0"  # torch.distributed.checkpoint.filesystem.CURRENT_DCP_VERSION


@noun
class Saved:
    """Where one value was written, and what it is: for a tensor ``dtype`` (as torch calls it) and ``shape``."""

    key: str
    steps: Steps
    file: str
    offset: int
    length: int
    dtype: str | None = None
    shape: tuple[int, ...] | None = None


def metadata(values: Sequence[Saved]) -> bytes:
    """Return the file's bytes."""
    writer = _Writer()
    writer.out.append(bytes((op.PROTO, _PROTOCOL)))
    writer.save(
        _Record(
            f"{_RECORDS}.Metadata",
            _Table(
                (
                    ("state_dict_metadata", _Table(tuple([(each.key, _kind(each)) for each in values]))),
                    ("planner_data", _Table(tuple([(each.key, each.steps) for each in values]))),
                    ("storage_data", _Table(tuple([(_index(each), _place(each)) for each in values]))),
                    ("storage_meta", None),
                    ("version", _VERSION),
                )
            ),
        )
    )
    return b"".join(writer.out) + b"."


# ---- the records


@noun
class _Name:
    """A class, function or dtype."""

    full: str


@noun
class _Call:
    """A call with one argument."""

    name: str
    argument: _Value


@noun
class _Table:
    """A dict."""

    pairs: tuple[tuple[_Value, _Value], ...]


@noun
class _Record:
    """An object of a class, and the state that it gets (None: it gets none)."""

    name: str
    state: _Value = None


@noun
class _Lone:
    """A list of one value."""

    item: _Value


_Value = Union[None, bool, int, str, Sequence["_Value"], _Name, _Call, _Table, _Record, _Lone]


def _size(shape: tuple[int, ...]) -> _Value:
    return _Call("torch.Size", shape)


def _origin(shape: tuple[int, ...]) -> _Value:
    return _size((0,) * len(shape))


def _kind(each: Saved) -> _Record:
    """Return what is said of one value: of a tensor its properties, its size, and that it is one chunk."""
    if each.shape is None or each.dtype is None:
        return _Record(f"{_RECORDS}.BytesStorageMetadata")
    size = _size(each.shape)
    chunk = _Record(f"{_RECORDS}.ChunkStorageMetadata", _Table((("offsets", _origin(each.shape)), ("sizes", size))))
    pairs = (("properties", _properties(each.dtype)), ("size", size), ("chunks", _Lone(chunk)))
    return _Record(f"{_RECORDS}.TensorStorageMetadata", _Table(pairs))


def _properties(dtype: str) -> _Record:
    """Return what ``TensorProperties.__setstate__`` takes: dtype, layout, requires_grad, memory format, pin_memory."""
    layout = _Call("torch.serialization._get_layout", "torch.strided")
    memory = _Call(f"{_RECORDS}._MEM_FORMAT_ENCODING", 0)
    return _Record(f"{_RECORDS}.TensorProperties", (_Name(f"torch.{dtype}"), layout, False, memory, False))


def _index(each: Saved) -> _Record:
    """Return what a chunk is looked up by: the key, and where it begins; other values by the key alone."""
    pairs: tuple[tuple[_Value, _Value], ...] = (("fqn", each.key), ("index", None))
    if each.shape is not None:
        pairs = (("fqn", each.key), ("index", 0), ("offset", _origin(each.shape)))
    return _Record(f"{_RECORDS}.MetadataIndex", _Table(pairs))


def _place(each: Saved) -> _Record:
    pairs = (("relative_path", each.file), ("offset", each.offset), ("length", each.length))
    return _Record(f"{_PLACES}._StorageInfo", _Table(pairs))


# ---- the pickle


class _Writer:
    """What was written so far; classes and texts are written once, and then fetched from the memo."""

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self._memo: dict[tuple[type, str], bytes] = {}

    def save(self, value: _Value) -> None:
        """Write one value and everything in it."""
        out = self.out
        if isinstance(value, str):
            text = value
            self._once(str, text, lambda: canonical.text_bytes(op.BINUNICODE, text))
        elif value is None or isinstance(value, int):
            out.append(canonical.constant(value, _PROTOCOL))
        elif isinstance(value, _Name):
            self._named(value.full)
        elif isinstance(value, _Call):
            self._named(value.name)
            self.save(value.argument)
            out.append(b"\x85R")
        elif isinstance(value, _Record):
            self._named(value.name)
            out.append(b")\x81")
            if value.state is not None:
                self.save(value.state)
                out.append(b"b")
        elif isinstance(value, _Table):
            out.append(b"}(")
            for key, item in value.pairs:
                self.save(key)
                self.save(item)
            out.append(b"u")
        elif isinstance(value, _Lone):
            out.append(b"]")
            self.save(value.item)
            out.append(b"a")
        else:
            out.append(b"(")
            for item in value:
                self.save(item)
            out.append(b"t")

    def _named(self, name: str) -> None:
        module, _, own = name.rpartition(".")
        self._once(_Name, name, lambda: f"c{module}\n{own}\n".encode())

    def _once(self, kind: type, value: str, made: Callable[[], bytes]) -> None:
        known = self._memo.get((kind, value))
        if known is None:
            index = len(self._memo)
            self.out += [made(), canonical.put(index, _PROTOCOL)]
            self._memo[kind, value] = canonical.get(index, _PROTOCOL)
        else:
            self.out.append(known)
