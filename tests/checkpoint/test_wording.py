"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from ckptdoctor.checkpoint.wording import counted


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 bytes follow"), (1, "1 byte follows"), (2, "2 bytes follow"), (1_124, "1,124 bytes follow")],
)
def test_one_is_not_several(number: int, said: str) -> None:
    """Noun and verb agree, and thousands are told apart."""
    assert counted(number, "byte follows", "bytes follow") == said


def test_an_s_is_enough_for_most() -> None:
    """Only what takes more is named."""
    assert (counted(1, "tensor"), counted(3, "tensor")) == ("1 tensor", "3 tensors")
