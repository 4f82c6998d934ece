"""Cuts the header's text at its names and values, so that only what is edited changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from json import JSONDecodeError, JSONDecoder

from ckptdoctor.errors import UnprovenError
from ckptdoctor.noun import noun, replace

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = JSONDecoder()


@noun
class Member:
    """One name and value of an object, as text: ``"name"``, the colon with blanks around it, the value, what follows.

    ``key`` is the name that the text stands for. ``after`` holds the comma or the blanks before the closing brace.
    """

    key: str
    name: str
    colon: str
    value: str
    after: str

    @property
    def text(self) -> str:
        """The member as it is in the header."""
        return self.name + self.colon + self.value + self.after


@noun
class Cut:
    """An object's text in pieces: up to the first name, the members, and from the closing brace on."""

    opening: str
    members: tuple[Member, ...]
    closing: str

    @property
    def text(self) -> str:
        """The whole text again."""
        return self.opening + "".join([member.text for member in self.members]) + self.closing

    @property
    def colon(self) -> str:
        """How this writer separates a name from its value."""
        return self.members[0].colon if self.members else ":"

    @property
    def comma(self) -> str:
        """How this writer separates members."""
        return self.members[0].after if len(self.members) > 1 else ", " if self.colon.endswith(" ") else ","

    def with_members(self, members: Sequence[Member]) -> Cut:
        """Return the same object with some of its members left out or replaced; the last one has no comma behind it."""
        if not members:
            return replace(self, members=())
        last = self.members[-1].after if self.members else ""
        inner = [m if "," in m.after else replace(m, after=self.comma) for m in members[:-1]]
        return replace(self, members=(*inner, replace(members[-1], after=last)))

    def with_first(self, key: str, value: str, name: str) -> Cut:
        """Return the same object with one more member before the others."""
        return self.with_members((Member(key, name, self.colon, value, self.comma), *self.members))

    def with_last(self, key: str, value: str, name: str) -> Cut:
        """Return the same object with one more member behind the others."""
        return self.with_members((*self.members, Member(key, name, self.colon, value, "")))


def cut(text: str) -> Cut:
    """Return a JSON object's text in pieces. Raises UnprovenError when the pieces do not give the text again."""
    try:
        start = _skip(text, 0)
        opening = _skip(text, start + 1)
        members = tuple(_members(text, opening))
    except (JSONDecodeError, RecursionError) as error:
        raise UnprovenError("The header could not be split into its entries, so it is not edited.") from error
    end = opening + sum(len(member.text) for member in members)
    made = Cut(text[:opening], members, text[end:])
    if made.text != text or not made.closing.startswith("}"):
        raise UnprovenError("The entries of the header do not add up to it again, so it is not edited.")
    return made


def _members(text: str, at: int) -> Iterator[Member]:
    while text[at : at + 1] == '"':
        key, colon = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, colon) + 1)
        _, end = _DECODER.raw_decode(text, value)
        following = _skip(text, end)
        if text[following : following + 1] == ",":
            following = _skip(text, following + 1)
        yield Member(key, text[at:colon], text[colon:value], text[value:end], text[end:following])
        at = following


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
