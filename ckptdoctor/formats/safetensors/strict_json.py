"""Reads JSON as strictly as serde_json does, which safetensors uses.

Python's ``json`` lets more pass: numbers that are not numbers, halves of surrogate pairs, any depth, integers of any
size. Duplicate keys are kept, for the caller to judge: an object is a tuple of pairs, an array a list.
"""

from __future__ import annotations

from collections.abc import Callable
from json import JSONDecodeError, JSONDecoder

from ckptdoctor.errors import DamagedError
from ckptdoctor.regex import regex

# serde_json gives up at its 128th level
MAX_DEPTH = 127

_SURROGATE = regex(r"\\u[dD][89a-fA-F]")
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = regex(rf"{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW}")
_NEGATIVE_ZERO = regex(r"[\[,:\s]-0(?![.\deE])")

Pairs = list[tuple[str, object]]


def parse(data: bytes, start: int, make_object: Callable[[Pairs], object]) -> object:
    """Return the value that ``data`` holds; objects are what ``make_object`` makes of their pairs.

    ``start`` is where the data lies in the file, for the messages. Raises DamagedError that names the byte.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = start + error.start
        raise DamagedError(f"the header is not UTF-8 text: byte {where:,} cannot be", offset=where) from error
    _refuse_lone_surrogates(text, start)
    # a pattern looks at every character, ten times as long as it takes to see that two of them are nowhere
    integer = _integer if "-0" in text and _NEGATIVE_ZERO.search(text) else None
    decoder = JSONDecoder(object_pairs_hook=make_object, parse_constant=_refuse_constant, parse_int=integer)
    try:
        return decoder.decode(text)
    except JSONDecodeError as error:
        where = start + byte_position(text, error.pos)
        reason = error.msg[:1].lower() + error.msg[1:]
        raise DamagedError(f"the header is not valid JSON: {reason} (at byte {where:,})", offset=where) from error
    except RecursionError as error:
        raise too_deep(start) from error
    except ValueError as error:  # Python refuses to convert integers of more than 4,300 digits
        raise DamagedError("the header has a number that is too long", offset=start) from error


def too_deep(start: int) -> DamagedError:
    """Return what is said of nesting that safetensors refuses."""
    return DamagedError(f"the header is nested more than {MAX_DEPTH} levels deep", offset=start)


def byte_position(text: str, position: int) -> int:
    """Return how many bytes of UTF-8 come before a character."""
    return position if text.isascii() else len(text[:position].encode())


def _integer(text: str) -> int | float:
    return -0.0 if text == "-0" else int(text)  # serde_json reads -0 as a floating-point number


def _refuse_constant(name: str) -> object:
    raise DamagedError(f"the header has the value {name}, which JSON does not know")


def _refuse_lone_surrogates(text: str, start: int) -> None:
    if "\\u" not in text or not _SURROGATE.search(text):
        return
    lone = _LONE.search(text.replace("\\\\", "  "))  # without escaped backslashes, each that is left begins an escape
    if lone:
        where = start + byte_position(text, lone.start())
        raise DamagedError(f"the header has half a surrogate pair (at byte {where:,}), which is not text", offset=where)
