"""What a checkpoint is for and where its weights lie."""

from __future__ import annotations

from ckptdoctor.facts import contents
from ckptdoctor.rules.examples import T
from tests.rules import nouns

NET = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}


def test_weights_are_found_through_dicts_and_lists() -> None:
    """Every set of weights that plain subscripts reach is a candidate, in file order."""
    found = contents.weight_sets(nouns.checkpoint({"a": {"b": [1, NET]}, "ema": NET, "optimizer": {}}))
    assert [each.path for each in found] == [("a", "b", 1), ("ema",)]


def test_a_purpose_needs_its_signs() -> None:
    """An optimizer's, a scheduler's and a generator's file are told apart from everything else."""
    purposes = [
        contents.purpose(nouns.checkpoint(each))
        for each in (
            {"state": {}, "param_groups": []},
            {"last_epoch": 1, "base_lrs": [0.1]},
            T((5056,), "uint8"),
            {"last_epoch": 1},
            {"state": NET},
            NET,
            None,
        )
    ]
    assert purposes == [
        "the state of an optimizer",
        "the state of a learning rate scheduler",
        "the state of random number generators",
        *[None] * 4,
    ]


def test_empty_places_count_only_without_weights() -> None:
    """An empty dict beside weights may be anything."""
    assert contents.empty_places(nouns.checkpoint({})) == [()]
    assert contents.empty_places(nouns.checkpoint({"model": {}, "x": {}})) == [("model",)]
    assert contents.empty_places(nouns.checkpoint({"model": NET, "params": {}})) == []
    assert contents.empty_places(nouns.checkpoint([])) == []
