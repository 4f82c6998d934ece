"""Reads the header of a GGUF file: its metadata, and the name, shape, type and place of each tensor.

Source: ``docs/gguf.md`` of ggml, and ``gguf/gguf_reader.py`` of llama.cpp's gguf package 0.19. Nothing that the file
declares is believed before the bytes for it are known to be there, and nothing is kept that only its length tells of.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct

from ckptdoctor.checkpoint import Source
from ckptdoctor.errors import DamagedError, HostileError, TruncatedError
from ckptdoctor.formats.gguf.kinds import KINDS, Kind
from ckptdoctor.noun import noun
from ckptdoctor.wording import plural

MAGIC_BYTES = 4
VERSIONS = (2, 3)

_WINDOW = 1 << 20  # bytes that are read at once
_MOST_DIMENSIONS = 4  # GGML_MAX_DIMS
_LONGEST_NAME = 1 << 16  # bytes of a key or of a tensor's name, as the format allows
_LONGEST_SHOWN = 200  # characters of a text that is kept
_MOST_SHOWN = 8  # members of a list that are kept
# texts and lists inside lists, all together: vocabularies have a tenth of it
_MOST_ITEMS = 8_000_000
_DEEPEST = 4  # lists in lists
_SMALLEST_PAIR, _SMALLEST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8  # bytes that one takes at least
_DEFAULT_ALIGNMENT = 32
_MOST_BYTES = 1 << 63  # of a tensor, as ggml counts them

_TEXT, _LIST, _BOOL = 8, 9, 7
# the codes of struct for the types of numbers
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "B", 10: "Q", 11: "q", 12: "d"}


@noun
class Entry:
    """A tensor: its shape, outermost dimension first, its type, and where its bytes are in the file.

    ``kind`` is None for a type that is not known: then ``nbytes`` are those up to whatever comes next.
    """

    name: str
    shape: tuple[int, ...]
    code: int
    kind: Kind | None
    offset: int
    nbytes: int


@noun
class Header:
    """What a header says. ``end`` is the byte at which the last tensor should end."""

    version: int
    big: bool
    metadata: dict[str, str]
    tensors: tuple[Entry, ...]
    end: int


def read_header(source: Source) -> Header:
    """Return the header. Raises DamagedError (TruncatedError, HostileError) where it cannot be what it says."""
    cursor = _Cursor(source)
    cursor.take(MAGIC_BYTES)
    version = cursor.number("I")
    if version & 0xFFFF == 0:  # as the gguf package tells the byte order
        cursor.order = ">"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in VERSIONS:
        raise DamagedError(f"the header is of version {version}; versions 2 and 3 are read", offset=MAGIC_BYTES)
    tensors, pairs = cursor.number("Q"), cursor.number("Q")
    _require_room(cursor, tensors, _SMALLEST_TENSOR, "tensor")
    _require_room(cursor, pairs, _SMALLEST_PAIR, "entry of metadata", "entries of metadata")
    metadata, alignment = _metadata(cursor, pairs)
    found = [_tensor(cursor) for _ in range(tensors)]
    data = -(-cursor.at // alignment) * alignment
    entries = _placed(found, data, alignment, source.size)
    end = max([each.offset + each.nbytes for each in entries], default=data)
    return Header(version, cursor.order == ">", metadata, entries, end)


def _require_room(cursor: _Cursor, count: int, smallest: int, name: str, names: str | None = None) -> None:
    if count * smallest > cursor.left:
        told = f"the header counts {plural(count, name, names)}, for which the file is too short"
        raise TruncatedError(told, offset=cursor.at)


# ---- metadata


def _metadata(cursor: _Cursor, pairs: int) -> tuple[dict[str, str], int]:
    """Return each entry as a short text, and the alignment of values."""
    found: dict[str, str] = {}
    alignment = _DEFAULT_ALIGNMENT
    for _ in range(pairs):
        at = cursor.at
        key = cursor.name("a key of the metadata")
        if key in found:
            raise DamagedError(f"the metadata has the key {_shown(key)} twice", offset=at)
        kind = cursor.number("I")
        value = _value(cursor, kind, 0)
        found[key] = value
        if key == "general.alignment":
            alignment = int(value) if kind == 4 else 0
            if alignment <= 0 or alignment & (alignment - 1):
                raise DamagedError(f"values are said to be aligned to {value} bytes, not a power of two", offset=at)
    return found, alignment


def _value(cursor: _Cursor, kind: int, depth: int) -> str:
    if kind == _TEXT:
        return _text(cursor)
    if kind == _LIST:
        return _list(cursor, depth)
    if kind not in _NUMBERS:
        raise DamagedError(f"the metadata has a value of type {kind}, which does not exist", offset=cursor.at)
    return _number(cursor.number(_NUMBERS[kind]), kind)


def _number(value: float, kind: int) -> str:
    return ("true" if value else "false") if kind == _BOOL else f"{value:.7g}" if kind == 6 else str(value)


def _text(cursor: _Cursor) -> str:
    length = cursor.length()
    kept = cursor.take(min(length, 4 * _LONGEST_SHOWN)).decode("utf-8", "replace")
    cursor.skip(length - min(length, 4 * _LONGEST_SHOWN))
    return kept if len(kept) <= _LONGEST_SHOWN else f"{kept[:_LONGEST_SHOWN]}…"


def _list(cursor: _Cursor, depth: int) -> str:
    """Return the first members, and how many there are; the rest is only passed over."""
    if depth >= _DEEPEST:
        raise HostileError("the metadata has lists in lists in lists, as no model has them", offset=cursor.at)
    kind, count = cursor.number("I"), cursor.number("Q")
    width = Struct(_NUMBERS[kind]).size if kind in _NUMBERS else 8
    if count * width > cursor.left:
        raise TruncatedError(f"a list of {count:,} members in the metadata continues past the end", offset=cursor.at)
    shown = [_value(cursor, kind, depth + 1) for _ in range(min(count, _MOST_SHOWN))]
    left = count - len(shown)
    if kind in _NUMBERS:
        cursor.skip(left * width)
    else:
        cursor.count(left)
        for _ in range(left):
            if kind == _TEXT:
                cursor.skip(cursor.length())
            else:
                _value(cursor, kind, depth + 1)
    more = f", … {count:,} in all" if left else ""
    return f"[{', '.join(shown)}{more}]"


# ---- tensors


def _tensor(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int, int]:
    """Return name, shape, type, and offset behind the header, and where the header says it."""
    at = cursor.at
    name = cursor.name("the name of a tensor")
    dimensions = cursor.number("I")
    if dimensions > _MOST_DIMENSIONS:
        told = f"the tensor {_shown(name)} has {dimensions:,} dimensions; {_MOST_DIMENSIONS} are allowed"
        raise DamagedError(told, offset=at)
    sizes = [cursor.number("Q") for _ in range(dimensions)]
    code, offset = cursor.number("I"), cursor.number("Q")
    return name, tuple(reversed(sizes)), code, offset, at


def _placed(
    found: list[tuple[str, tuple[int, ...], int, int, int]], data: int, alignment: int, size: int
) -> tuple[Entry, ...]:
    """Return the tensors with their bytes. Raises DamagedError for sizes and places that cannot be."""
    entries: list[Entry] = []
    names: set[str] = set()
    begins = sorted({data + offset for *_, offset, _ in found})
    following = dict(pairwise(begins))
    for name, shape, code, offset, at in found:
        if name in names:
            raise DamagedError(f"two tensors have the name {_shown(name)}", offset=at)
        names.add(name)
        if offset % alignment:
            told = f"the tensor {_shown(name)} begins at {offset:,}, which is not a multiple of {alignment}"
            raise DamagedError(told, offset=at)
        kind = KINDS.get(code)
        begin = data + offset
        nbytes = max(0, following.get(begin, size) - begin) if kind is None else _nbytes(name, shape, kind, at)
        if begin + nbytes >= _MOST_BYTES:
            raise DamagedError(f"the tensor {_shown(name)} would end at byte {begin + nbytes:,}", offset=at)
        entries.append(Entry(name, shape, code, kind, begin, nbytes))
    return tuple(entries)


def _nbytes(name: str, shape: tuple[int, ...], kind: Kind, at: int) -> int:
    count = 1
    for each in shape:
        count *= each
    row = shape[-1] if shape else 1
    if row % kind.elements:
        told = f"rows of the tensor {_shown(name)} have {row:,} elements, which {kind.name} cannot pack"
        raise DamagedError(told, offset=at)
    return count // kind.elements * kind.nbytes


def _shown(name: str) -> str:
    return f'"{name if len(name) <= 60 else name[:59] + "…"}"'


class _Cursor:
    """Reads a file from its beginning, a window at a time; what is skipped is not read."""

    def __init__(self, source: Source) -> None:
        self.order = "<"
        self._source = source
        self._window = b""
        self._start = 0  # where the window begins in the file
        self._place = 0  # in the window
        self._items = 0

    @property
    def at(self) -> int:
        """The byte of the file that comes next."""
        return self._start + self._place

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self._source.size - self.at

    def take(self, length: int) -> bytes:
        """Return the next bytes. Raises TruncatedError where the file ends before."""
        end = self._place + length
        if end > len(self._window):
            self._require(length)
            self._start, self._place = self.at, 0
            self._window = self._source.read(self._start, min(max(length, _WINDOW), self._source.size - self._start))
            end = length
        found = self._window[self._place : end]
        self._place = end
        return found

    def skip(self, length: int) -> None:
        """Pass over bytes. Raises TruncatedError where the file ends before."""
        end = self._place + length
        if end > len(self._window):
            self._require(length)
            self._start, self._window, self._place = self.at + length, b"", 0
        else:
            self._place = end

    def number(self, code: str) -> int:
        """Return the next number, of a type that ``struct`` gives this code; a float for one of those."""
        layout = _LAYOUTS[self.order + code]
        value: int = layout.unpack(self.take(layout.size))[0]
        return value

    def length(self) -> int:
        """Return the length of a text, which is there as a whole."""
        length = self.number("Q")
        if length > self.left:
            raise TruncatedError(f"a text of {length:,} bytes continues past the end of the file", offset=self.at)
        return length

    def name(self, what: str) -> str:
        """Return the next text, which is a name."""
        at, length = self.at, self.length()
        if length >= _LONGEST_NAME:
            raise DamagedError(f"{what} is {length:,} bytes long", offset=at)
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise DamagedError(f"{what} is not UTF-8", offset=at) from None

    def count(self, items: int) -> None:
        """Count what is passed over one by one. Raises HostileError where that would take too long."""
        self._items += items
        if self._items > _MOST_ITEMS:
            raise HostileError(
                f"the metadata has more than {_MOST_ITEMS:,} texts, as no model has them", offset=self.at
            )

    def _require(self, length: int) -> None:
        if length > self.left:
            raise TruncatedError(
                f"the file ends within its header: {plural(length, 'byte is', 'bytes are')} needed at byte {self.at:,},"
                f" and {self.left:,} are there",
                offset=self.at,
            )


_LAYOUTS = {order + code: Struct(order + code) for order in "<>" for code in {*_NUMBERS.values()}}
