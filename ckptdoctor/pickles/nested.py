"""Finds pickles in the texts and bytes of another pickle: whoever reads those out may unpickle them.

``weights_only=True`` lets texts and bytes pass, whatever is in them. A text in Base64 counts as what it stands for.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Collection, Iterator

from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.decode import follow
from ckptdoctor.pickles.graph import Pickle, String
from ckptdoctor.pickles.machine import Handler, Machine
from ckptdoctor.pickles.opcode_handlers import HANDLERS
from ckptdoctor.regex import regex

# of one pickle so many texts are kept, and no longer ones: what is pickled into a text is small
_MOST_TEXTS = 2_000
MOST_KEPT = 64 << 20
_LONGEST = 16 << 20
LONGEST_BYTES = 64 << 10  # of those that do not begin as a pickle does
_LEAST = 8  # a shorter one names nothing

# opcodes of bytes, and the width of their counts; and those of texts, which the machine takes out anyway
_BYTES = {op.SHORT_BINSTRING: 1, op.BINSTRING: 4}
_BYTES |= {op.SHORT_BINBYTES: 1, op.BINBYTES: 4, op.BINBYTES8: 8, op.BYTEARRAY8: 8}
_TEXTS = (op.BINUNICODE, op.SHORT_BINUNICODE, op.BINUNICODE8, op.STRING, op.UNICODE)

# what follows PROTO in a pickle: an opcode that needs nothing on the stack (0xc2: one beyond 0x7f, as text in UTF-8)
_FIRST = frozenset(b"\x95\x8c\x8d\x8e\x8f\x96\x97\x8a\x8b\x80\x82\x83\x84\x88\x89\xc2()]}NcKMJILFGXBCUTSVP")
_SHORT = frozenset((op.SHORT_BINBYTES, op.SHORT_BINSTRING, op.SHORT_BINUNICODE))
_NUMBERED = frozenset((op.BININT2, op.BININT, op.LONG_BINPUT, op.LONG_BINGET))  # opcodes with a number behind them

_PROTOCOL = regex(rb"\x80[\2-\5][" + re.escape(bytes(_FIRST)) + rb"]")
# the same in Base64, and a global of protocols 0 and 1
_SIGNS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def _in_base64(lowest: int) -> bytes:
    """Return what is behind the first two signs of a pickle: the third, by its two lowest bits, and the fourth.

    Together they are the protocol and the opcode behind it.
    """
    opcodes = [_SIGNS[each & 63 : (each & 63) + 1] for each in sorted(_FIRST) if each >> 6 == lowest]
    others = [other for sign, other in ((b"+", b"-"), (b"/", b"_")) if sign in opcodes]
    fourth = b"".join([re.escape(each) for each in (*opcodes, *others)])
    return b"[" + _SIGNS[8 + lowest : 24 : 4] + rb"][" + fourth + rb"\s]"


_BASE64 = regex(b"gA(?:" + b"|".join(map(_in_base64, range(4))) + rb")[A-Za-z0-9+/_\s-]{5,}={0,2}")
_BASE64_LINES = regex(
    b"(?:"
    + b"|".join(
        re.escape(_SIGNS[first >> 2 : (first >> 2) + 1])
        + b"["
        + re.escape(_SIGNS[(first & 3) << 4 : ((first & 3) << 4) + 16])
        + b"]"
        for first in b"ci(SVILFN]})"  # what a pickle of protocol 0 or 1 begins with
    )
    + rb")[A-Za-z0-9+/_\s-]{14,}={0,2}"
)
_IS_WORD = bytes([sign in _SIGNS + b"-_ \t\r\n\f\v" for sign in range(256)])
_SHORTEST = b"\1" * 16  # no text that the last expression finds is shorter
_LONG, _WINDOW = b"\1" * 20, 1 << 16  # a call in Base64 is longer; so much is looked through at a time
_IS_SIGN = bytes([sign in _SIGNS + b"-_= \t\r\n" for sign in range(256)])
_NO_SIGN = regex(rb"[^A-Za-z0-9+/_= \t\r\n-]")
_NAME = regex(rb"\n([A-Za-z_][\w.]{0,99})\n")
_MODULE = regex(rb"[ci]([A-Za-z_][\w.]{0,99})\Z")
_GLOBAL = regex(rb"[ci][A-Za-z_][\w.]{0,99}\n[A-Za-z_][\w.]{0,99}\n")


def texts_of(data: bytes, pickle: Pickle) -> list[tuple[int, bytes]]:
    """Return the strings of a decoded pickle that are pickles themselves, or may be, each with its offset."""
    if not _may_hold_pickles(data, pickle):
        return []
    texts = Texts()
    follow(data, pickle.start, handlers=texts.handlers())
    return texts.found


def _may_hold_pickles(data: bytes, pickle: Pickle) -> bool:
    """Return whether one of the texts may be a pickle, told without looking for the texts.

    It costs a fraction of what decoding does, and is true of hardly any checkpoint.
    """
    start, end = pickle.start, pickle.end
    if any(not _is_number(data, found.start()) for found in _PROTOCOL.finditer(data, start + 2, end)):
        return True
    if _BASE64.search(data, start, end) or (not pickle.protocol and data.find(b"\\x80\\x0", start, end) >= 0):
        return True
    if any(_names_in_base64(text) for text in _long_words(data, start, end)):
        return True
    names = {(use.module, use.name) for use in pickle.globals}
    return any(_is_new(data, found, names) for found in _NAME.finditer(data, start, end))


def _is_number(data: bytes, at: int) -> bool:
    """Return whether the bytes are those of a number, such as 640, 896 or 2,622,080, and not a protocol.

    Sizes of tensors are such numbers, and so are indices of the memo where there are some 300,000 tensors. No string
    that is looked at has one of these opcodes directly before its first byte, where its length is, unless it is short.
    """
    return data[at - 1] in _NUMBERED and data[at - 2] not in _SHORT


def _is_new(data: bytes, found: re.Match[bytes], names: Collection[tuple[str, str]]) -> bool:
    """Return whether two lines are a global that the pickle itself does not name."""
    module = _MODULE.search(data[max(0, found.start() - 101) : found.start()])
    return (
        module is not None and (module[1].decode("ascii", "replace"), found[1].decode("ascii", "replace")) not in names
    )


def is_looked_at(length: int, first: int) -> bool:
    """Return whether bytes of this length that begin so are looked at.

    Others are the values of an array, most likely.
    """
    return length <= LONGEST_BYTES or (length <= _LONGEST and first == op.PROTO)


def may_be_kept(raw: bytes, room: int) -> tuple[bool, int]:
    """Return whether anything in bytes may count as a pickle, and the room that is left then, at most."""
    if _begins_as_pickle(raw) and len(raw) <= room:
        return True, room - len(raw)
    return _BASE64.search(raw) is not None or _BASE64_LINES.search(_words(raw)) is not None, room


class Texts:
    """Keeps the texts that are pickles, or may be, while a machine follows the pickle around them."""

    def __init__(self) -> None:
        self.found: list[tuple[int, bytes]] = []  # where the text begins, and the pickle
        self._room = MOST_KEPT

    def handlers(self, usual: tuple[Handler, ...] = HANDLERS) -> tuple[Handler, ...]:
        """Return the same handlers, with those of strings looking at what is in them."""
        table = list(usual)
        for code, width in _BYTES.items():
            table[code] = self._of_bytes(usual[code], width)
        for code in _TEXTS:
            table[code] = self._of_text(usual[code])
        return tuple(table)

    def _of_bytes(self, usual: Handler, width: int) -> Handler:
        """Bytes are not taken out of the file for it: they may be the values of an array."""

        def handler(m: Machine, at: int) -> int:
            end, begin = usual(m, at), at + width
            if _LEAST <= end - begin <= _LONGEST and is_looked_at(end - begin, m.data[begin]):
                self._look(m.data[begin:end], at - 1)
            return end

        return handler

    def _of_text(self, usual: Handler) -> Handler:
        def handler(m: Machine, at: int) -> int:
            end = usual(m, at)
            top = m.stack[-1]
            if _LEAST <= end - at <= _LONGEST and isinstance(top, String):
                self._look(top.value, at - 1)
            return end

        return handler

    def _look(self, value: str | bytes, at: int) -> None:
        for each in _pickles(value):
            if len(self.found) < _MOST_TEXTS and len(each) <= self._room:
                self._room -= len(each)
                self.found.append((at, each))


def _begins_as_pickle(raw: bytes) -> bool:
    return len(raw) > 2 and raw[0] == op.PROTO and 2 <= raw[1] <= 5 and raw[2] in _FIRST


def _pickles(value: str | bytes) -> Iterator[bytes]:
    """Yield the pickle that a text or bytes object is, if it may be one: as it is, or in Base64."""
    try:
        raw = value if isinstance(value, bytes) else value.encode("latin-1")
    except UnicodeEncodeError:
        return
    if raw[:1] == b"\x80":
        if _begins_as_pickle(raw):
            yield raw
    elif b"\n" in raw and _GLOBAL.search(raw):
        yield raw
    for found in _BASE64.finditer(raw):
        yield from _decoded(found[0])
    for found in _BASE64_LINES.finditer(_words(raw)):
        yield from [each for each in _decoded(found[0]) if _GLOBAL.search(each) is not None]


def _long_words(data: bytes, start: int, end: int) -> Iterator[bytes]:
    """Yield what may be a text in Base64.

    This is much faster than the regular expression, which hardly ever has anything to do.
    """
    at = start
    while at < end:
        signs = data[at : min(end, at + _WINDOW)].translate(_IS_SIGN)
        passed, found = len(signs) if at + len(signs) == end else len(signs) - len(_LONG), signs.find(_LONG)
        while found >= 0:
            passed = signs.find(b"\0", found)
            if passed < 0:  # it goes on behind the window
                close = _NO_SIGN.search(data, at + found, end)
                passed = (end if close is None else close.start()) - at
            yield data[at + found : at + passed]
            found = signs.find(_LONG, passed)
        at += passed


def _names_in_base64(text: bytes) -> bool:
    found = _BASE64_LINES.finditer(text)
    return any(_GLOBAL.search(each) is not None for words in found for each in _decoded(words[0]))


def _words(raw: bytes) -> bytes:
    """Return the bytes, or none where they hold no text in Base64: much faster than the regular expression."""
    return raw if _SHORTEST in raw.translate(_IS_WORD) else b""


def _decoded(text: bytes) -> Iterator[bytes]:
    packed = b"".join(text.split()).rstrip(b"=").translate(_STANDARD)
    try:
        yield a2b_base64(packed[: len(packed) - (len(packed) % 4 == 1)] + b"=" * (-len(packed) % 4))
    except Base64Error:  # no text in Base64 after all
        return


_STANDARD = bytes.maketrans(b"-_", b"+/")
