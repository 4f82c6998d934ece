"""Pickles in the texts of a pickle are found, and numbers are not taken for them."""

from __future__ import annotations

import pickle
from unittest import mock

import pytest

from ckptdoctor.pickles import decode, nested
from ckptdoctor.pickles.nested import texts_of

NUMBER = b"\x80\x02(\x00"  # 2,622,080, which begins as a pickle of protocol 2 does


@pytest.mark.parametrize(
    "opcodes", [b"]r" + NUMBER + b"]j" + NUMBER + b"a", b"]J" + NUMBER + b"a", b"]M" + NUMBER[:2] + b"a"]
)
def test_numbers_that_begin_as_a_pickle_are_not_followed(opcodes):
    """Memo indices and sizes of a large file do not have it read once more."""
    data = b"\x80\x02" + opcodes + b"."
    with mock.patch.object(nested, "follow") as follow:
        assert texts_of(data, decode(data)) == []
    assert not follow.called


@pytest.mark.parametrize("length", [*b"JMjr", 8, 255])
@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_a_pickle_is_found_whatever_the_length_of_its_text(length, protocol):
    """Also where the byte that says the length is the opcode of a number."""
    inner = (b"\x80\x02" + b"N0" * length)[: length - 2] + b"N."
    assert len(inner) == length
    for value in (inner, inner.decode("latin-1")):
        data = pickle.dumps(["text before", value], protocol)
        assert [found for _, found in texts_of(data, decode(data))] == [inner]
