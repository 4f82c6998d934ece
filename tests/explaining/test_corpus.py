"""Messages of many programs, word by word: right, or honest about not knowing, and never wrong."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from ckptdoctor.explaining.explanation import explain
from tests.explaining.corpus import MESSAGES
from tests.explaining.test_wordings import assert_parses


def answer(text):
    """The code of the root; None where nothing is recognised."""
    hits = explain(text).hits
    return hits[0].code if hits else None


def test_almost_all_are_right_and_none_is_wrong():
    """At least 95 of 100 have their cause; of the others it is said that it is not known, or nothing more than is."""
    verdicts = {id(message): message.verdict(answer(message.text)) for message in MESSAGES}
    wrong = [message for message in MESSAGES if verdicts[id(message)] == "wrong"]
    assert wrong == []
    assert len(MESSAGES) >= 200
    assert Counter(verdicts.values())["right"] >= 0.95 * len(MESSAGES)


@pytest.mark.parametrize(
    "message", MESSAGES, ids=lambda message: f"{message.family} {message.codes[0]} {message.source}"
)
def test_in_a_log(message):
    """The answer is the same among the lines of a log."""
    assert answer(f"step 10 loss 0.1\n{message.text}\nstep 11 loss 0.1\n") == answer(message.text)


@pytest.mark.parametrize(
    "message", MESSAGES, ids=lambda message: f"{message.family} {message.codes[0]} {message.source}"
)
def test_what_to_do(message):
    """Every explanation ends with something to type, and its commands exist. Nobody is told to let a pickle do more."""
    for hit in explain(message.text).hits:
        assert hit.ways
        for way in hit.ways:
            assert_parses(way.command)
            assert "add_safe_globals" not in way.command + hit.meaning
            assert not re.search(r"weights_only\W+(set to\W+)?(False|0)", way.command + hit.meaning)
