"""The examples of rules, told as errors of load_state_dict: explain names the rule, another that is known, or no cause.

An error names neither what fits nor the shape of a key that one side has alone, so a rule may have nothing to go by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from ckptdoctor.explaining.explanation import explain
from ckptdoctor.rules.examples import Odict, T
from ckptdoctor.rules.registry import all_rules

# what is said where the example's own rule cannot be asked: the generic rules, and what is true of the error as well
GENERIC = {"R001", "R002", "R003"}
INSTEAD = {
    # names alone do not tell that an adapter is for another model, or which rank it has
    "L902": {"L906"},
    "L909": {"L906"},
    # what fits is not named: whether other layers have other sizes as well
    "R003": {"S510"},
    "X802": {"S510"},
    # the keys that are left over behind a wrapper
    "N417": {"N401"},
    "N425": {"N401"},
    # trained weights beside their average are the model's
    "N428": {"N409"},
    # query, key and value are fused on one side as well
    "N426": {"S507"},
}


def told(here: Mapping[str, object], there: Mapping[str, object]) -> str:
    """What torch says when these are loaded, "" when it says nothing."""
    missing = [key for key, value in there.items() if isinstance(value, T) and key not in here]
    unexpected = [key for key in here if key not in there]
    lines = [
        f"\t{kind} key(s) in state_dict: {', '.join([json.dumps(key) for key in keys])}. "
        for kind, keys in (("Missing", missing), ("Unexpected", unexpected))
        if keys
    ]
    for key, wanted in there.items():
        given = here.get(key)
        if isinstance(given, T) and isinstance(wanted, T) and given.shape != wanted.shape:
            ours, theirs = list(given.shape), list(wanted.shape)
            lines.append(
                f"\tsize mismatch for {key}: copying a param with shape torch.Size({ours}) from checkpoint, the shape"
                f" in current model is torch.Size({theirs})."
            )
    return "\n".join(["Error(s) in loading state_dict for Net:", *lines]) if lines else ""


def weights(contents: object) -> dict[str, object]:
    """The keys of what somebody would hand to load_state_dict."""
    found = contents.entries if isinstance(contents, Odict) else contents
    if not isinstance(found, dict):
        return {}
    inner = [found[name] for name in ("state_dict", "model", "model_state_dict", "module") if name in found]
    inner = [each for each in inner if isinstance(each, (dict, Odict))]
    return weights(inner[0]) if inner else {key: value for key, value in found.items() if isinstance(key, str)}


def errors() -> list[object]:
    """Each sick example with a target, as the error that it makes."""
    return [
        pytest.param(rule.code, text, id=f"{rule.code} {example.title}")
        for rule in all_rules()
        for example in rule.sick
        if example.like is not None and (text := told(weights(example.contents), weights(example.like)))
    ]


@pytest.mark.parametrize(("code", "text"), errors())
def test_a_sick_example_is_called_what_it_is(code, text):
    """Or what is true of it as well; never by another cause."""
    root = explain(text).hits[0].code
    assert root in {code, *GENERIC, *INSTEAD.get(code, ())} or _is_about(code, text)


def _is_about(code: str, text: str) -> bool:
    """Whether the rule is named, if not first."""
    return code in [hit.code for hit in explain(text).hits]


def test_most_are_called_by_their_own_rule():
    """The others are those of which an error names too little."""
    found = [parameter.values for parameter in errors()]
    own = [code for code, text in found if _is_about(code, text)]
    assert len(own) >= 0.8 * len(found)


# what makes these healthy an error does not tell
NOT_TOLD = {
    # shapes of keys that one side has alone, and dtypes
    ("N412", "a weight with a different shape"),
    ("N413", "a weight with a different shape"),
    ("N417", "something else with that name"),
    ("N419", "an attention layer's real bias"),
    ("N419", "frequencies that are learnt"),
    ("N419", "positions of each example"),
    ("N419", "positions that are learnt"),
    ("S507", "shapes that do not add up"),
    ("S508", "a gate with another size"),
    ("S509", "fewer experts"),
    # keys that fit
    ("N409", "stripping would give two keys one name"),
    ("N418", "an input normalizer"),
    ("S501", "a bias that disagrees"),
    ("S507", "no keys among the missing"),
    ("S512", "feed-forward layers half as wide"),
    # the versions in ``_metadata``, without which torch itself does not call these keys missing
    ("N416", "a plain dict"),
    ("N416", "norm layers of torch 0.4.0"),
    # names that a replacement leaves, of tensors with another shape
    ("N403", "another shape"),
    # what is inside a dict of the file: which of two is the part that is meant
    ("W312", "an average next to them"),
    # which of the model's layers what is left over would be
    ("N422", "a target with a missing key"),
}


def test_a_healthy_example_is_not_called_sick():
    """What a rule is silent about in a file, it is silent about in an error, as far as an error tells."""
    called = {
        (rule.code, example.title)
        for rule in all_rules()
        for example in rule.healthy
        if example.like is not None and _is_about(rule.code, told(weights(example.contents), weights(example.like)))
    }
    assert {each for each in called if each[0] not in GENERIC} == NOT_TOLD
