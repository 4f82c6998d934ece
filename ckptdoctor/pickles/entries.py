"""Reads entries of a state dict, keys with their tensors, off the bytes of a pickle: no memo is asked for it.

The 34 opcodes of nearly every entry are recognised by one regular expression, or by comparing them with those of an
entry that was like it: tensors of a model come in an order that repeats itself layer by layer.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from ckptdoctor.regex import regex

_GET = rb"(h.|j....)"
_PUT = rb"r(....)"
_INTEGER = rb"(?:K.|M..|J....)"


def _call(put: bytes) -> bytes:
    """Return the expression for the call that makes a tensor, with such PUTs between its opcodes.

    It is (('storage', class, key, location, numel) BINPERSID, offset, size, stride, requires_grad, OrderedDict())
    REDUCE. A location other than "cpu" is a new text for every storage.
    """
    shape = rb"(\)|" + _INTEGER + rb"{1,3}[\x85-\x87]|\(" + _INTEGER + rb"{4,64}t)(?:" + put + rb")?"
    return (
        rb"\(\(" + _GET + _GET + rb"X(.)\0\0\0([0-9]{1,19})" + put
        + rb"(?:" + _GET + rb"|X(.)\0\0\0([a-z0-9:]{1,24})" + put + rb")"
        + rb"(" + _INTEGER + rb")t" + put + rb"Q(" + _INTEGER + rb")" + shape + shape
        + rb"([\x88\x89])" + _GET + rb"\)R" + put + rb"t" + put + rb"R" + put
    )  # fmt: skip


TENSOR = regex(_call(rb"(q.|r....)"), re.DOTALL)
EARLY = 0xFF  # up to this memo index a PUT has one byte for it, and no entry is read at once
_EARLY_PUTS = b"".join([b"q%c" % index for index in range(EARLY + 1)])

# an entry of a state dict: the key with its PUT, and a tensor whose function is fetched from the memo
_ENTRY = regex(rb"X(.)\0\0\0(.{0,255}?)" + _PUT + _GET + _call(_PUT), re.DOTALL)
_MOST = 10_000  # patterns of one stream
_SHORTEST = 60  # bytes; less than any entry has
_WORD_SIZE = 4  # bytes of a memo index
_SHORT = b"\0\0\0"  # the upper bytes of the length of a text
_TEXTS = [b"X%c" % size + _SHORT for size in range(256)]  # BINUNICODE, with the length


class Pattern:
    """Entries of which the same bytes are in the stream, except for names and memo indices.

    ``function`` is the GET of what is called; the others are, as they are there: the GETs, the integers, the opcodes of
    size and stride (with whether each is stored in the memo), and the text of a device tag that is not a GET. ``count``
    is the number of memo entries that the tensor stores.
    """

    __slots__ = (
        *("_rest", "count", "following", "function", "grad", "hooks", "kind", "names", "numel", "offset"),
        *("place", "size", "size_kept", "stride", "stride_kept", "tag", "where"),
    )

    def __init__(self, match: re.Match[bytes]) -> None:
        (_, _, _, self.function, self.tag, self.kind, _, key, _, self.where, _, self.place, _, self.numel, _,
         self.offset, self.size, size_put, self.stride, stride_put, self.grad, self.hooks, _, _, _
         ) = match.groups(b"")  # fmt: skip
        self.size_kept, self.stride_kept = bool(size_put), bool(stride_put)
        self.following: Pattern | None = None  # what came behind it the last time
        # Memo indices count up by one: the bytes of an entry, read as one number, are those of the first entry and
        # so many times a number that has a one at each PUT. An addition takes a quarter of the time of packing them.
        data, at = match.string, match.end(8)
        rest, step, self.count = b"", 0, 0
        for group in (9, 13, 15, 18, 20, 23, 24, 25):
            begin, end = match.span(group)
            if begin >= 0:
                rest += data[at:begin]
                step += 1 << 8 * len(rest)
                self.count += 1
                rest += self.count.to_bytes(_WORD_SIZE, "little")
                at = end
        self._rest = int.from_bytes(rest, "little"), step, len(rest)
        self.expect(len(key))

    def expect(self, key_size: int) -> None:
        """From now on know entries by keys of storages with so many digits: those of most neighbours have as many."""
        head = b"r" + bytes(_WORD_SIZE) + self.function + b"((" + self.tag + self.kind + b"X%c" % key_size + _SHORT
        # what is between the names, as a number for the memo index 0, with its bytes; and what is behind them
        self.names = int.from_bytes(head, "little"), len(head), key_size, *self._rest


class Run(NamedTuple):
    """Entries one behind another: the memo index of the first one, where they end, and the pattern of each.

    Their keys are in ASCII, and none is "storage", which torch takes for more than a text.
    """

    first: int
    end: int
    patterns: list[Pattern]


class Entries:
    """Reads the entries of one stream in their order. ``runs`` are those that were taken, by where they begin."""

    def __init__(self, data: bytes) -> None:
        self.runs: dict[int, Run] = {}
        self._data = data
        self._patterns: dict[tuple[object, ...], Pattern] = {}
        self._last: Pattern | None = None

    def read(self, at: int, index: int, limit: int) -> tuple[Pattern, bytes, bytes, int] | None:
        """Return the entry at ``at``, with its names and where it ends, or None for anything else.

        Its memo indices must be ``index`` and those that follow, and it must end before ``limit``.
        """
        last, data = self._last, self._data
        pattern = None if last is None else last.following
        if pattern is not None and at + _SHORTEST < limit:
            head, head_size, digits, rest, step, rest_size = pattern.names
            letters = data[at + 1]
            behind = at + 5 + letters
            begin = behind + head_size
            stop = begin + digits
            end = stop + rest_size
            if (
                end <= limit
                and data.startswith(_TEXTS[letters], at)
                and data.startswith((head + (index << 8)).to_bytes(head_size, "little"), behind)
                and data.startswith((rest + index * step).to_bytes(rest_size, "little"), stop)
                and (storage := data[begin:stop]).isdigit()
            ):
                self._last = pattern
                return pattern, data[at + 5 : behind], storage, end
        match = _ENTRY.match(data, at, limit)
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
        if last is not None:
            last.following = pattern
        self._last = pattern
        return pattern, name, key, match.end()


def puts_in_sequence(puts: Collection[bytes], first: int) -> int:
    """Return how many PUTs there are, 0 unless their memo indices are ``first`` and those after it."""
    told = b"".join(puts)
    if told.startswith(b"q"):
        count = len(told) >> 1
        return count if told == _EARLY_PUTS[2 * first : 2 * (first + count)] else 0
    indices = b"".join([each[1:] for each in puts])
    return len(indices) >> 2 if in_sequence(indices, first) else 0


def in_sequence(puts: bytes, first: int) -> bool:
    """Return whether the memo indices, four bytes each, are ``first`` and the numbers after it."""
    count = len(puts) >> 2
    return _words(count).pack(*range(first, first + count)) == puts


@lru_cache(maxsize=32)
def _words(count: int) -> Struct:
    """Return the layout of so many memo indices."""
    return Struct(f"<{count}I")
