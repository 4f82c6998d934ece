"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from ckptdoctor.wording import plural


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 bytes follow"), (1, "1 byte follows"), (2, "2 bytes follow"), (1_124, "1,124 bytes follow")],
)
def test_one_is_not_several(number: int, said: str) -> None:
    """Noun and verb agree, and thousands are told apart."""
    assert plural(number, "byte follows", "bytes follow") == said


def test_an_s_is_enough_for_most() -> None:
    """Only what takes more is named."""
    assert (plural(1, "tensor"), plural(3, "tensor")) == ("1 tensor", "3 tensors")
