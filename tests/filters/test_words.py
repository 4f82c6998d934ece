"""The language of the filter in words."""

from __future__ import annotations

import pytest

from ckptdoctor.filters.language import parse
from ckptdoctor.filters.words import WORDS


@pytest.mark.parametrize("written", [word for words, _ in WORDS for word in words.split()])
def test_every_example_is_understood(written):
    """What the help tells people to write is one word of the language."""
    (term,) = parse(written).terms
    assert term.text == written
