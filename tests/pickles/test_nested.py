"""Pickles in the texts of a pickle are found, and numbers are not taken for them."""

from __future__ import annotations

import base64
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


def test_the_parameters_of_a_large_optimizer_are_not_taken_for_base64():
    """The 16,743rd is written as ``MgA``, and the next ones go on like letters."""
    data = pickle.dumps(list(range(16_000, 24_000)), 2)
    assert b"gAMhAMiAMjA" in data
    with mock.patch.object(nested, "follow") as follow:
        assert texts_of(data, decode(data)) == []
    assert not follow.called


@pytest.mark.parametrize("encoded", [base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("value", [[1.5], (), {"a": 1}, "text", b"\xfb\xff bytes", 10**30, {1}, 1.5], ids=repr)
def test_a_pickle_in_base64_is_found_among_numbers(value, protocol, encoded):
    """Whatever it begins with."""
    inner = pickle.dumps(value, protocol)
    data = pickle.dumps([*range(16_740, 16_750), encoded(inner + b" " * 9), *range(16_740, 16_750)], 2)
    assert inner in [found[: len(inner)] for _, found in texts_of(data, decode(data))]
