"""What happened to many names is said in a few words."""

from __future__ import annotations

import pytest

from ckptdoctor.match.rewordings import Rewording, describe


def said(*names):
    """The description of these renames."""
    return describe([Rewording(tuple(old.split(".")), tuple(new.split("."))) for old, new in names])


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([("head", "head.fc")], "head → head.fc"),
        ([("fc1", "mlp.fc1"), ("fc2", "mlp.fc2")], "fc{n} → mlp.fc{n}"),
        (
            [("layers.0.down", "layers.1.down"), ("layers.1.down", "layers.2.down")],
            "layers.{n}.down → layers.{n+1}.down",
        ),
        ([("blocks.3", "stages.1.0"), ("blocks.7", "stages.2.0")], "blocks.{n} → stages.{…}.0"),
        ([("a.1.b.2", "c.2.1"), ("a.3.b.4", "c.4.3")], "a.{n}.b.{m} → c.{m}.{n}"),
    ],
)
def test_numbers_that_follow_from_each_other_are_letters(names, words):
    """One rule for all that differ only in numbers."""
    assert said(*names) == words


def test_many_words_are_cut():
    """More than eight rules are counted."""
    assert said(*[(letter, letter.upper()) for letter in "abcdefghij"]).endswith(", h → H and 2 more")


def test_long_numbers_are_no_numbers():
    """Thousands of digits are not counted with."""
    assert said(("a." + "9" * 5000, "b.1"), ("a.1", "b.2")) == "a.{n} → b.{…}"
