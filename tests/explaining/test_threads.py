"""Error texts of public threads, explained: the cause that the thread found, or an honest word, and never another."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from ckptdoctor.explaining.explanation import explain
from ckptdoctor.rendering.explain import as_text
from tests.explaining.test_wordings import assert_parses
from tests.explaining.threads import LATER, PASTED


def test_almost_all_are_right_or_honest_and_none_is_wrong():
    """At least 95 of 100; of the others nothing false is said."""
    for texts in (PASTED, LATER):
        verdicts = Counter(pasted.verdict(explain(pasted.text).hits) for pasted in texts)
        assert verdicts["wrong"] == 0
        assert verdicts["right"] + verdicts["honest"] >= 0.95 * len(texts)


def test_the_list_is_wide():
    """Two hundred texts of many projects, and few of each."""
    projects = Counter(pasted.source.partition("#")[0] for pasted in PASTED)
    assert len(PASTED) == 200
    assert len(projects) >= 60
    assert max(projects.values()) <= 8


@pytest.mark.parametrize("pasted", [*PASTED, *LATER], ids=lambda pasted: pasted.source)
def test_what_to_do(pasted):
    """Every explanation ends with something to type that exists, on the file that the text names, where it does."""
    explained = explain(pasted.text)
    if explained.hits and explained.file:
        assert not re.search(r"\bFILE\b", as_text(explained, set()))
    for hit in explained.hits:
        assert hit.ways
        for way in hit.ways:
            assert_parses(way.command)
            assert "{key}" not in hit.meaning + way.command


@pytest.mark.parametrize("pasted", [*PASTED, *LATER], ids=lambda pasted: pasted.source)
def test_in_a_log(pasted):
    """The answer is the same among the lines of a log."""
    here = pasted.verdict(explain(pasted.text).hits)
    assert pasted.verdict(explain(f"step 10 loss 0.1\n{pasted.text}\nstep 11 loss 0.1\n").hits) == here
