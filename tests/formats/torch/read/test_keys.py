from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint import Special
from ckptdoctor.formats.torch.read.objects import parts_of
from ckptdoctor.pickles import decode

PLAIN = st.one_of(st.text(max_size=3), st.integers(-3, 3), st.booleans(), st.none(), st.sampled_from([1.0, 0.5, -0.0]))


def steps(keys, protocol=4):
    return parts_of([decode(pickle.dumps(key, protocol)).root for key in keys])


@settings(deadline=None, max_examples=200)
@given(st.lists(PLAIN, max_size=8))
def test_repeats_are_those_of_a_python_dict(keys):
    """Two keys are one exactly where Python's dict takes them for one."""
    parts, repeats = steps(keys)
    kept = [index for index in range(len(keys)) if index not in repeats]
    assert len(kept) == len(dict.fromkeys(keys))
    assert all(keys[index] == keys[first] for index, first in repeats.items())
    assert len({parts[index] for index in kept}) == len(kept)


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("a", "a"),
        (-7, -7),
        (2**61 - 2, 2**61 - 2),
        (2**61 - 1, Special(str(2**61 - 1))),
        (10**400, Special("(integer of 1329 bits)")),
        (True, Special("True")),
        (1.5, Special("1.5")),
        (b"x", Special("b'x'")),
        ((), Special("()")),
        ((1,), Special("(1,)")),
        ((1, ("a", None)), Special("(1, ('a', None))")),
        (tuple(range(20)), Special("(tuple of 20)")),
        (frozenset({1}), Special("frozenset(1,)")),
    ],
)
def test_keys_are_shown_as_they_would_be_printed(key, part):
    """Text and integers are themselves; everything else is spelt out within bounds."""
    assert steps([key])[0] == [part]


def test_keys_that_look_alike_are_numbered():
    """Different keys never share a step."""
    assert steps(["1", 1, (1,), (1,), "(1,)"])[0] == ["1", 1, Special("(1,)"), Special("(1,) #2"), "(1,)"]
