"""Reads entries of a state dict, keys with their tensors, off the bytes of a pickle: no memo is asked for it.

The 34 opcodes of nearly every entry are recognised by one regular expression, or by comparing them with those of an
entry that was like it: tensors of a model come in an order that repeats itself layer by layer.
"""

from __future__ import annotations

import re
from functools import lru_cache
from struct import Struct

from ckptdoctor.regex import regex

_GET = rb"(h.|j....)"
_PUT = rb"r(....)"
_INTEGER = rb"(?:K.|M..|J....)"
_SHAPE = rb"(\)|" + _INTEGER + rb"{1,3}[\x85-\x87]|\(" + _INTEGER + rb"{4,64}t)(?:" + _PUT + rb")?"

# (('storage', class, key, location, numel) BINPERSID, offset, size, stride, requires_grad, OrderedDict()) REDUCE, with
# the PUTs between. A location other than "cpu" is a new text for every storage.
_CALL = (
    rb"\(\(" + _GET + _GET + rb"X(.)\0\0\0([0-9]{1,19})" + _PUT
    + rb"(?:" + _GET + rb"|X(.)\0\0\0([a-z0-9:]{1,24})" + _PUT + rb")"
    + rb"(" + _INTEGER + rb")t" + _PUT + rb"Q(" + _INTEGER + rb")" + _SHAPE + _SHAPE
    + rb"([\x88\x89])" + _GET + rb"\)R" + _PUT + rb"t" + _PUT + rb"R" + _PUT
)  # fmt: skip
TENSOR = regex(_CALL, re.DOTALL)

# an entry of a state dict: the key with its PUT, and a tensor whose function is fetched from the memo
_ENTRY = regex(rb"X(.)\0\0\0(.{0,255}?)" + _PUT + _GET + _CALL, re.DOTALL)
_MOST = 10_000  # patterns of one stream
_SHORTEST = 60  # bytes; less than any entry has
_WORD_SIZE = 4  # bytes of a memo index
_TEXT = 0x58  # BINUNICODE
_SHORT = b"\0\0\0"  # the upper bytes of the length of a text


class Pattern:
    """Entries of which the same bytes are in the stream, except for names and memo indices.

    ``function`` is the GET of what is called; the others are, as they are there: the GETs, the integers, the opcodes of
    size and stride (with whether each is stored in the memo), and the text of a device tag that is not a GET. ``count``
    is the number of memo entries that the tensor stores. ``head`` are the bytes between the two keys, and ``rest``
    those behind them, as numbers for the memo index 0: ``rest`` grows by ``step`` with each.
    """

    __slots__ = (
        *(
            "count",
            "following",
            "function",
            "grad",
            "head",
            "head_size",
            "hooks",
            "key_size",
            "kind",
            "numel",
            "offset",
        ),
        *("place", "rest", "rest_size", "size", "size_kept", "step", "stride", "stride_kept", "tag", "where"),
    )

    def __init__(self, match: re.Match[bytes]) -> None:
        (_, _, _, self.function, self.tag, self.kind, _, key, _, self.where, _, self.place, _, self.numel, _,
         self.offset, self.size, size_put, self.stride, stride_put, self.grad, self.hooks, _, _, _
         ) = match.groups(b"")  # fmt: skip
        self.size_kept, self.stride_kept = bool(size_put), bool(stride_put)
        self.following: Pattern | None = None  # what came behind it the last time
        # Memo indices count up by one: the bytes of an entry, read as one number, are those of the first entry and
        # so many times a number that has a one at each PUT. An addition takes a quarter of the time of packing them.
        self.expect(len(key))
        data, at = match.string, match.end(8)
        rest, self.step, self.count = b"", 0, 0
        for group in (9, 13, 15, 18, 20, 23, 24, 25):
            begin, end = match.span(group)
            if begin >= 0:
                rest += data[at:begin]
                self.step += 1 << 8 * len(rest)
                self.count += 1
                rest += self.count.to_bytes(_WORD_SIZE, "little")
                at = end
        self.rest, self.rest_size = int.from_bytes(rest, "little"), len(rest)

    def expect(self, key_size: int) -> None:
        """From now on know entries by keys of storages with so many digits: those of most neighbours have as many."""
        head = b"r" + bytes(_WORD_SIZE) + self.function + b"((" + self.tag + self.kind + b"X%c" % key_size + _SHORT
        self.head, self.head_size, self.key_size = int.from_bytes(head, "little"), len(head), key_size


# of an entry, its pattern, its key, the key of its storage, and where it ends
Entry = tuple[Pattern, bytes, bytes, int]

_AT_ONCE = 256  # entries


class Entries:
    """Reads the entries of one stream in their order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._patterns: dict[tuple[object, ...], Pattern] = {}
        self._last: Pattern | None = None

    def run(self, at: int, index: int, limit: int) -> list[Entry]:
        """Return the entries that follow one another from ``at`` on, at most some hundred.

        Their memo indices must be ``index`` and those that follow, and they must end before ``limit``.
        """
        data, startswith, last = self._data, self._data.startswith, self._last
        found: list[Entry] = []
        while len(found) < _AT_ONCE:
            pattern = None if last is None else last.following
            if pattern is not None and at + _SHORTEST < limit and data[at] == _TEXT and startswith(_SHORT, at + 2):
                behind = at + 5 + data[at + 1]
                begin = behind + pattern.head_size
                stop = begin + pattern.key_size
                key, end = data[begin:stop], stop + pattern.rest_size
                if (
                    startswith((pattern.head + (index << 8)).to_bytes(pattern.head_size, "little"), behind)
                    and key.isdigit()
                    and startswith((pattern.rest + index * pattern.step).to_bytes(pattern.rest_size, "little"), stop)
                    and end <= limit
                ):
                    found.append((pattern, data[at + 5 : behind], key, end))
                    last, at, index = pattern, end, index + 1 + pattern.count
                    continue
            self._last = last
            other = self._recognised(at, index, limit)
            if other is None:
                return found
            found.append(other)
            last, at, index = other[0], other[3], index + 1 + other[0].count
        self._last = last
        return found

    def _recognised(self, at: int, index: int, limit: int) -> Entry | None:
        """Return the entry at ``at`` by its form alone, or None for anything else."""
        match = _ENTRY.match(self._data, at, limit)
        if match is None:
            return None
        (size, name, put, function, tag, kind, key_size, key, key_put, where, place_size, place, place_put, numel,
         id_put, offset, shape, shape_put, stride, stride_put, grad, hooks, hooks_put, arguments_put,
         tensor_put) = match.groups(b"")  # fmt: skip
        puts = (put, key_put, place_put, id_put, shape_put, stride_put, hooks_put, arguments_put, tensor_put)
        if not in_sequence(b"".join(puts), index) or size[0] != len(name) or key_size[0] != len(key):
            return None
        if place and place_size[0] != len(place):
            return None
        kept = bool(shape_put), bool(stride_put)
        said = (function, tag, kind, where, place, numel, offset, shape, stride, grad, hooks, kept)
        pattern = self._patterns.get(said)
        if pattern is None:
            if len(self._patterns) >= _MOST:
                return None
            pattern = self._patterns[said] = Pattern(match)
        pattern.expect(len(key))
        if self._last is not None:
            self._last.following = pattern
        self._last = pattern
        return pattern, name, key, match.end()


def in_sequence(puts: bytes, first: int) -> bool:
    """Return whether the memo indices, four bytes each, are ``first`` and the numbers after it."""
    count = len(puts) >> 2
    return _words(count).pack(*range(first, first + count)) == puts


@lru_cache(maxsize=32)
def _words(count: int) -> Struct:
    """Return the layout of so many memo indices."""
    return Struct(f"<{count}I")
