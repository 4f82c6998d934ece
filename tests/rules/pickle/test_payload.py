"""What is neither tensors nor their names is measured about as it stands in the pickle."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from ckptdoctor.rules.examples import T
from ckptdoctor.rules.pickle.huge_non_tensor_payload import large_values
from tests.rules.nouns import checkpoint
from tests.work import growth

SIZE = 100_000_000


def measured(contents, least=1):
    """The payloads of contents in a file of a hundred megabytes."""
    return [(each.path, each.nbytes) for each in large_values(replace(checkpoint(contents), size=SIZE), least)]


@pytest.mark.parametrize(
    "value",
    [[0.5] * 10_000, list(range(10_000)), "x" * 10_000, b"x" * 10_000, [f"word{index}" for index in range(5_000)],
     {f"token{index}": index for index in range(5_000)}],
    ids=["floats", "numbers", "text", "bytes", "words", "vocabulary"],
)  # fmt: skip
def test_the_size_is_about_that_of_the_pickle(value):
    """Within a factor of two of what Python's pickler writes, memo aside."""
    ((path, size),) = measured({"w": T((3,)), "x": value}, 100)
    assert path == ("x",)
    assert 0.5 < size / len(pickle.dumps(value, 4)) < 2


def test_the_largest_come_first_and_tensors_never():
    """Every value stands under its own key; a dict with tensors in it is not one of them."""
    contents = {"model": {"w": T((3,)), "note": "x" * 50}, "a": "y" * 100, "b": {"c": ["z" * 200]}, "t": [T((2,)), 3]}
    assert [path for path, _ in measured(contents, 40)] == [("b",), ("a",), ("model", "note")]


def test_a_file_without_room_for_it_is_not_looked_through():
    """What is not stored in tensors cannot be larger than the rest of the file."""
    assert large_values(replace(checkpoint({"a": "y" * 100}), size=50), 60) == []


@pytest.mark.slow
def test_the_work_grows_with_the_number_of_keys():
    """And of numbers; not with the square of either."""
    given = {}
    for number in (5_000, 50_000):
        contents = {f"layers.{index}.weight": T((1,)) for index in range(number)}
        given[number] = replace(checkpoint({"model": contents, "history": [0.5] * (20 * number)}), size=SIZE)
        assert [each.path for each in large_values(given[number], 1000)] == [("history",)]
    assert growth(lambda number: large_values(given[number], 1000), 5_000, 50_000) < 40
