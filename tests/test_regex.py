"""Regular expressions that are compiled when they are first asked."""

from __future__ import annotations

import re

from ckptdoctor.regex import regex


def test_nothing_is_compiled_before_it_is_asked(monkeypatch):
    """A module with a dozen of them is imported without one being compiled; the first question compiles its own."""
    asked = []
    genuine = re.compile
    monkeypatch.setattr(re, "compile", lambda *given: asked.append(given) or genuine(*given))
    digits, words = regex(r"\d+"), regex(r"[a-z]+", re.IGNORECASE)
    assert asked == []
    assert digits.findall("1 of 23") == ["1", "23"]
    assert digits.findall("4") == ["4"]
    assert asked == [(r"\d+", 0)]
    assert words.fullmatch("MODEL")
    assert len(asked) == 2


def test_it_is_asked_as_a_compiled_one_is():
    """Bytes, flags and everything that a pattern knows."""
    assert regex(rb"a.b", re.DOTALL).search(b"xa\nb").span() == (1, 4)
    assert regex(r"(?P<number>\d)").groupindex == {"number": 1}
    assert regex("a").pattern == "a"
