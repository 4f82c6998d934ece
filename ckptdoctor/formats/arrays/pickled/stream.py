"""Decodes a pickle whose bytes stay in the file, and steps over the arrays that joblib writes between its opcodes."""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from typing import Protocol, Union, cast, runtime_checkable

from ckptdoctor.checkpoint import FileSource, Source
from ckptdoctor.errors import HostileError, UnreadableError
from ckptdoctor.formats.arrays.pickled.joblib import Wrapped, is_wrapper, wrapped
from ckptdoctor.noun import field, noun
from ckptdoctor.pickles import opcodes
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.decode import Followed, decode, follow
from ckptdoctor.pickles.graph import NO_MEMO, Made, Pickle, String
from ckptdoctor.pickles.lookups import is_getattr
from ckptdoctor.pickles.machine import Handler, Machine
from ckptdoctor.pickles.nested import Texts
from ckptdoctor.pickles.opcode_handlers import HANDLERS

# bytes of text that one pickle may hold: protocol 2 writes bytes of Python 3 as text, which has to be read
_MOST_TEXT = 512 << 20
_LONG_TEXT = 1 << 16

# pickles inside the stream of another one: joblib writes arrays of objects so
_MOST_INNER = 10_000


@noun
class Payload:
    """The array behind a joblib object (``node``): where its values begin (None: they are pickled objects)."""

    node: Made
    array: Wrapped
    start: int | None


@noun(frozen=False)
class Stream:
    """A decoded pickle with the arrays that are in its stream, by the id of the object that stands for each.

    ``texts`` are those in it that are pickles themselves, or may be, each with where it is.
    """

    data: Data
    pickle: Pickle
    payloads: dict[int, Payload] = field(default_factory=dict)
    texts: list[tuple[int, bytes]] = field(default_factory=list)


def read_stream(source: Source, start: int = 0) -> Stream:
    """Return the pickle that begins at byte ``start``. Raises DamagedError when it is invalid or cut off."""
    data = data_of(source)
    reader, texts = _Reader(), Texts()
    pickle = decode(as_bytes(data), start, handlers=texts.handlers(reader.handlers()))
    return Stream(data, pickle, reader.payloads, texts.found)


def follow_stream(data: Data, start: int) -> tuple[Followed, list[tuple[int, bytes]]]:
    """Return how far the pickle at byte ``start`` can be followed, and the texts in it that may be pickles."""
    texts = Texts()
    return follow(as_bytes(data), start, handlers=texts.handlers(_Reader().handlers())), texts.found


class _Reader:
    """What handlers have to remember of one pickle."""

    def __init__(self) -> None:
        self.payloads: dict[int, Payload] = {}
        self._text = 0
        self._inner = 0

    def handlers(self) -> tuple[Handler, ...]:
        """Return the handlers of the machine, with those of long strings, of MARK and of BUILD exchanged."""
        table = list(HANDLERS)
        table[op.MARK] = mark
        for code, width in ((op.SHORT_BINBYTES, 1), (op.BINBYTES, 4), (op.BINBYTES8, 8), (op.BYTEARRAY8, 8)):
            table[code] = _holder(width)
        table[op.BINSTRING] = _long_string
        table[op.BINUNICODE] = self._counting(op.BINUNICODE, 4)
        table[op.BINUNICODE8] = self._counting(op.BINUNICODE8, 8)
        table[op.BUILD] = self._build
        return tuple(table)

    def _counting(self, code: int, width: int) -> Handler:
        usual = HANDLERS[code]

        def handler(m: Machine, at: int) -> int:
            begin = m.need(width, at, "a count")
            length = int.from_bytes(m.data[at:begin], "little")
            m.need(length, begin, "a string")  # what is cut off is no bomb
            if length >= _LONG_TEXT:
                self._text += length
                if self._text > _MOST_TEXT:
                    message = (
                        f"the pickle holds more than {_MOST_TEXT:,} bytes as text at byte {at}: pickle it again with "
                        "protocol 4 or later"
                    )
                    raise HostileError(message, offset=at)
            return usual(m, at)

        return handler

    def _build(self, m: Machine, at: int) -> int:
        at = HANDLERS[op.BUILD](m, at)
        top = m.stack[-1]
        return self._behind(m, top, at) if type(top) is Made and is_wrapper(top) else at

    def _behind(self, m: Machine, node: Made, at: int) -> int:
        """Return the position behind the array that follows ``node``, which is remembered."""
        array = wrapped(node, at)
        if m.frame_end == at:
            m.frame_end = -1  # joblib ends the frame before the array
        if array.kind.objects:
            self.payloads[id(node)] = Payload(node, array, None)
            return self._inner_pickle(m, at)
        start = at
        if array.aligned:
            m.need(1, at, "a padding")
            start = m.need(m.data[at], at + 1, "a padding")
        self.payloads[id(node)] = Payload(node, array, start)
        return m.need(array.nbytes, start, "an array")

    def _inner_pickle(self, m: Machine, at: int) -> int:
        """Return the end of the pickle of an array of objects. Its names count as those of the pickle around it."""
        self._inner += 1
        if self._inner > _MOST_INNER:
            raise HostileError(f"more than {_MOST_INNER:,} pickles are nested in the pickle", offset=at)
        inner = follow(m.data, at, handlers=_INNER)
        for use in inner.names:
            m.name(use.module, use.name, use.offset)
        m.inner += filter(is_getattr, inner.names)
        if inner.error is not None:
            raise inner.error
        m.extra_opcodes += inner.opcodes
        m.nodes += inner.opcodes
        return inner.end


def mark(m: Machine, at: int) -> int:
    """Handle MARK without the short way for tensors of torch.save, of which a plain pickle has none."""
    m.metastack.append(m.stack)
    m.stack = []
    return at


def _holder(width: int) -> Handler:
    def handler(m: Machine, at: int) -> int:
        begin = m.need(width, at, "a count")
        end = m.need(int.from_bytes(m.data[at:begin], "little"), begin, "a bytes object")
        m.nodes += 1
        m.stack.append(Held(m.data[at - 1], m.data, begin, end - begin))
        return end

    return handler


def _long_string(m: Machine, at: int) -> int:
    """Return a string of Python 2 of more than 255 bytes: an array's values, most often."""
    begin = at + 4
    length = int.from_bytes(m.data[at:begin], "little", signed=True)
    if length <= 0 or begin > m.size:
        return HANDLERS[op.BINSTRING](m, at)
    end = m.need(length, begin, "a string")
    m.nodes += 1
    m.stack.append(Held(op.BINSTRING, m.data, begin, length))
    return end


def _inner_table() -> tuple[Handler, ...]:
    table = list(HANDLERS)
    table[op.MARK] = mark
    return tuple(table)


_INNER = _inner_table()


# ---- bytes that a pickle holds, left where they are in the file until somebody asks for them


# up to this size a pickle is read at once; longer ones are mapped, so that its arrays need no memory
_READ_AT_ONCE = 16 << 20

# the longest pickle that is read where nothing can be mapped
_MOST_READ = 1 << 30
_MOST_FETCHED = 128 << 20

Data = Union[bytes, mmap]


class Hollow(mmap):
    """A mapped file that lacks long bytes of which only the place is wanted; ``need`` brings those that are asked for.

    Bytes that are looked through for pickles are there (``pickles.nested.is_looked_at``).
    """

    def need(self, start: int, stop: int) -> None:
        """See to it that these bytes are there."""


@runtime_checkable
class Mapped(Protocol):
    """A source that knows how it is mapped."""

    def mapped(self) -> mmap:
        """Return all of it."""


class Held(String):
    """A bytes object, a bytearray or a long string of Python 2: ``length`` bytes at ``start`` of ``data``."""

    __slots__ = ("data", "length", "start")

    def __init__(self, op: int, data: Data, start: int, length: int) -> None:
        self.op = op
        self.data = data
        self.start = start
        self.length = length
        self.memo = NO_MEMO

    @property
    def value(self) -> str | bytes:  # type: ignore[override]  # the bytes stand in the file, not in a slot
        """The bytes themselves, read from the file; the string of Python 2 as text where it is ASCII."""
        if isinstance(self.data, Hollow):
            self.data.need(self.start, self.start + self.length)
        raw = self.data[self.start : self.start + self.length]
        return raw.decode("ascii") if self.op == opcodes.BINSTRING and raw.isascii() else raw


def data_of(source: Source) -> Data:
    """Return the whole source as bytes, mapped where it is a long file.

    Raises HostileError where it is too long to read.
    """
    if isinstance(source, Mapped):
        return source.mapped()
    if source.size <= _READ_AT_ONCE:
        return source.read(0, source.size)
    if isinstance(source, FileSource):
        try:
            with open(source.file, "rb") as file:
                return mmap(file.fileno(), source.size, access=ACCESS_READ)
        except (OSError, ValueError) as error:  # no room for it, or it has become shorter
            raise UnreadableError(f"{source.path} cannot be mapped into memory: {error}.") from error
    most = _MOST_FETCHED if source.distant else _MOST_READ
    if source.size > most:
        message = (
            f"{source.path} is a pickle of {source.size:,} bytes, which is read all at once: at most "
            f"{most:,} are read from a remote or packed file; download or unpack it first."
        )
        raise HostileError(message)
    return source.read(0, source.size)


def as_bytes(data: Data) -> bytes:
    """Return the same for functions that ask for bytes: a map can do what they do with them."""
    return cast(bytes, data)
