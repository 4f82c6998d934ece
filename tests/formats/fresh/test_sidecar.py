from __future__ import annotations

import json
import math

import pytest

from ckptdoctor.checkpoint import Elided, Mapping, Named, Opaque, Sequence, Special
from ckptdoctor.checkpoint.keypath import UnknownKeyError, key_of
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.fresh.sidecar import sidecar


def contents(node):
    return json.loads(sidecar(node, {}, {}, "a.pt"))["contents"]


def test_plain_values_are_what_json_calls_them():
    """Numbers exactly, texts even with lone halves of characters."""
    value = [1, -(2**62), 0.1, True, None, "ä\ud800", 1e308]
    assert contents(Sequence("list", tuple(value))) == value


def test_what_json_has_no_word_for_is_marked():
    """Tuples, bytes, infinite numbers, long integers, dicts with other keys."""
    assert contents(Sequence("tuple", (b"\xff", math.inf, 2**80))) == {
        "$tuple": [{"$bytes": "/w=="}, {"$float": "inf"}, {"$int": hex(2**80)}]
    }
    assert contents(Mapping("dict", ((1, "a"), (Special("(1, 'x')"), "b")))) == {
        "$dict": "dict", "entries": [[1, "a"], [{"$tuple": [1, "x"]}, "b"]]
    }  # fmt: skip
    assert contents(Mapping("dict", (("$float", "nan"),))) == {"$dict": "dict", "entries": [["$float", "nan"]]}


def test_objects_are_described_and_never_made():
    """Their class, and all that the file says of them."""
    node = Opaque("argparse.Namespace", state=Mapping("dict", (("lr", 0.1), ("f", Named("torch.float32")))))
    assert contents(node) == {"$object": "argparse.Namespace", "state": {"lr": 0.1, "f": {"$name": "torch.float32"}}}


def test_what_was_not_read_is_refused():
    """It cannot be kept, and it must not get lost."""
    with pytest.raises(RefusedError):
        contents(Elided("too deep"))


@pytest.mark.parametrize("key", [0.5, None, True, (1, ("a", b"b")), ()])
def test_odd_keys_are_told_by_how_they_are_spelt(key: object):
    """Exactly, or not at all."""
    assert repr(key_of(Special(repr(key)))) == repr(key)


@pytest.mark.parametrize("text", ["<object>", "(tuple of 20)", "nan", "1+1", "[1]", "{}", "0.50"])
def test_other_spellings_are_no_keys(text: str):
    """What only describes a key is never taken for it."""
    with pytest.raises(UnknownKeyError):
        key_of(Special(text))
