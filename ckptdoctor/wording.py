"""Writes the small words of every message: numbers with their nouns, lists that break off, why the system refused.

Integers of any size are safe to show. What was mistyped is answered with what is known and most like it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

# beyond this many bits an integer is described instead of printed: ``str`` refuses more than 4,300 digits
PRINTABLE_BITS = 256


def count(number: int) -> str:
    """Return ``1,124``; what is too long to print becomes its order of magnitude."""
    if number.bit_length() > PRINTABLE_BITS:
        return f"{'-' if number < 0 else ''}2^{number.bit_length() - 1}"
    return f"{number:,}"


def plural(number: int, noun: str, many: str | None = None) -> str:
    """Return ``1,124 bytes``, ``1 byte``. ``many`` is for what takes more than an s: ``entries``, ``bytes follow``."""
    return f"{count(number)} {noun if number == 1 else many or noun + 's'}"


# words that begin with the letter of a vowel and not with its sound: uuid.UUID, a user's class
_CONSONANT = (
    "uuid",
    "unit",
    "unix",
    "unique",
    "union",
    "universal",
    "usage",
    "use",
    "usi",
    "usu",
    "util",
    "eu",
    "one.",
)


def article(word: str) -> str:
    """Return ``a`` or ``an``, as a word or a number is read: an 8, an 11, a 110."""
    low = word.lower()
    number = low[: len(low) - len(low.lstrip("0123456789"))]
    if number:
        return "an" if number[0] == "8" or number in ("11", "18") else "a"
    return "an" if low.startswith(tuple("aeiou")) and not low.startswith(_CONSONANT) else "a"


def percent(
    part: int, whole: int, rounded: Callable[[float], str] | None = None, *, none: str = "0 %", empty: str = "100 %"
) -> str:
    """Return ``99.9 %``: 100 only where nothing is missing, 0 only where nothing is there.

    ``rounded`` writes what is between, instead of at least 0.1 and at most 99.9; ``empty`` is a share of nothing.
    """
    if part == whole:
        return "100 %" if whole else empty
    if not part:
        return none
    share = 100 * part / whole
    return f"{min(max(share, 0.1), 99.9):.1f} %" if rounded is None else f"{rounded(share)} %"


_FORMATS = {
    "torch zip": "PyTorch .pt (zip)",
    "torch legacy": "PyTorch .pt (before 1.6)",
    "torch tar": "PyTorch .pt (tar)",
}


def format_name(identifier: str) -> str:
    """Return how people call a format: ``PyTorch .pt (zip)``. JSON says the identifier itself, ``torch zip``."""
    return _FORMATS.get(identifier, identifier)


def span(first: int, last: int) -> str:
    """Return neighbours among numbers, both ends included: ``0..22``; the number where it is one."""
    return str(first) if first == last else f"{first}..{last}"


def did_you_mean(word: str, known: Iterable[str], *, quote: str = '"') -> str:
    """Return `` Did you mean "check"?``, with a blank before it, or "" where nothing that is known is like the word."""
    near = nearest(word, known)
    return f" Did you mean {quote}{near}{quote}?" if near else ""


def not_one_of(option: str, word: str, words: Sequence[str]) -> str:
    """Return the sentence for a word that an option does not take."""
    return f'{option}: "{word}" is not one of {listed(words)}.{did_you_mean(word, words)}'


def nearest(word: str, known: Iterable[str], alike: float = 0.6) -> str:
    """Return the one that is most like a word, whatever the case, or "" where no two are as much ``alike`` (0 to 1)."""
    from difflib import get_close_matches  # only ever needed where something is wrong

    spelt = {each.lower(): each for each in known}
    near = get_close_matches(word.lower(), spelt, 1, alike)
    return spelt[near[0]] if near else ""


def system_says(error: OSError, access: str = "read") -> str:
    """Return why the system did not open something, with a full stop, and who can help where that is not clear.

    ``access`` is what was needed: "read", or "write" where something was to be made, moved or removed.
    """
    told = f"{error.strerror}."
    if isinstance(error, PermissionError):
        return f"{told} The owner of it, or of a folder that it is in, can grant {access} access."
    return told


def listed(items: Sequence[T], most: int | None = None, noun: str = "", *, say: Callable[[T], str] = str) -> str:
    """Return words joined as people do.

    That is ``a``, ``a and b``, ``a, b and c``; beyond ``most`` of them ``a, b and 3 more``.
    """
    if most is not None and len(items) > most:
        return and_more(items, most, noun, say=say)
    *first, last = [say(item) for item in items] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def and_more(
    items: Sequence[T],
    most: int,
    noun: str = "",
    *,
    say: Callable[[T], str] = str,
    between: str = ", ",
    before: str = " and ",
    spelt: Callable[[int], str] = count,
) -> str:
    """Return ``a, b and 3 more``: the first of a list in its own words, and what ``beyond`` says of the others."""
    shown = between.join([say(item) for item in items[:most]])
    return shown + beyond(len(items) - most, noun, before=before, spelt=spelt)


def beyond(
    number: int, noun: str = "", *, before: str = " and ", after: str = "", spelt: Callable[[int], str] = count
) -> str:
    """Return `` and 3 more``, `` and 1 more key``: what a list leaves out, or "" where that is nothing.

    ``spelt`` writes the number: ``str`` where thousands have no comma.
    """
    if number <= 0:
        return ""
    return f"{before}{spelt(number)} more{f' {noun}' if noun else ''}{'s' if noun and number > 1 else ''}{after}"


def the_first(name: str, many: int) -> str:
    """Return what names the first of so many things at the end of a sentence; the only one is simply named."""
    return f"; the first is {name}" if many > 1 else f": {name}"


def and_so_on(words: Iterable[str], most: int, *, between: str = ", ", end: str = ", …") -> str:
    """Return ``a, b, …``: the first words, and a sign that there are others where nobody counts them."""
    first = list(islice(words, most + 1))
    return between.join(first[:most]) + (end if len(first) > most else "")


def first_few(lines: Sequence[str], most: int, *, before: str = "") -> list[str]:
    """Return the first of several lines or entries; the last is ``3 more`` where there are others."""
    return [*lines[:most], *filter(None, [beyond(len(lines) - most, before=before)])]
