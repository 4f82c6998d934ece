"""Bytes that a pickle holds, left where they are in the file until somebody asks for them."""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from typing import Protocol, Union, cast, runtime_checkable

from ckptdoctor.checkpoint import FileSource, Source
from ckptdoctor.errors import HostileError, UnreadableError
from ckptdoctor.pickles import opcodes
from ckptdoctor.pickles.graph import NO_MEMO, Text

# up to this size a pickle is read at once; longer ones are mapped, so that its arrays need no memory
_READ_AT_ONCE = 16 << 20

# the longest pickle that is read where nothing can be mapped
_MOST_READ = 1 << 30
_MOST_FETCHED = 128 << 20

Data = Union[bytes, mmap]


class Hollow(mmap):
    """A mapped file that lacks long bytes of which only the place is wanted; ``need`` brings those that are asked for.

    Bytes that are looked through for pickles are there (``pickles.inner.is_looked_at``).
    """

    def need(self, start: int, stop: int) -> None:
        """See to it that these bytes are there."""


@runtime_checkable
class Mapped(Protocol):
    """A source that knows how it is mapped."""

    def mapped(self) -> mmap:
        """All of it."""


class Held(Text):
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
    """The whole source as bytes, mapped where it is a long file. Raises HostileError where it is too long to read."""
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
            f"{source.path} is a pickle of {source.size:,} bytes, which is read as a whole: at most {most:,} are "
            "read from where it lies; download or unpack it first."
        )
        raise HostileError(message)
    return source.read(0, source.size)


def as_bytes(data: Data) -> bytes:
    """The same for functions that ask for bytes: a map can do what they do with them."""
    return cast(bytes, data)
