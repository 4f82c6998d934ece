"""Many keys as few modules."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint.patterns import drop_patterns, dropped_paths, key_patterns
from ckptdoctor.rules.examples import T
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.reference import missing_keys
from tests.rules import nouns

KEYS = st.lists(
    st.lists(st.sampled_from(["a", "b", "0", "[x]", "w*"]), min_size=1, max_size=4).map(".".join),
    min_size=1,
    max_size=12,
    unique=True,
)


def test_keys_are_grouped_by_the_deepest_modules_that_are_few() -> None:
    """Two modules stay two; forty become their common parents."""
    few = wording.grouped_keys({"a.b.weight": 4, "a.b.bias": 2, "c.weight": 1}, 4)
    assert [(group.module, group.parameters, len(group.keys)) for group in few] == [("a.b", 6, 2), ("c", 1, 1)]
    many = wording.grouped_keys({f"layers.{number}.fc.weight": 4 for number in range(40)}, 4)
    assert [(group.module, group.parameters, len(group.keys)) for group in many] == [("layers", 160, 40)]


def test_the_nearest_key_has_the_shape_and_the_ending() -> None:
    """Of several candidates the one with most tokens in common, and none without the same last token."""
    candidates = {"head.fc.weight": (2, 4), "old.head.weight": (2, 4), "head.bias": (2, 4), "x.weight": (9, 9)}
    assert missing_keys.nearest_key("head.out.weight", (2, 4), candidates) == "head.fc.weight"
    assert missing_keys.nearest_key("head.out.weight", (3, 4), candidates) is None
    assert missing_keys.nearest_key("scale", (2, 4), candidates) is None


def test_patterns_take_whole_modules_where_they_can() -> None:
    """One pattern for a module that goes wholly, single keys where others stay."""
    going = ["loss.a.weight", "loss.b.weight", "fc.bias"]
    assert key_patterns(going, ["fc.weight", "conv.weight"]) == ["loss.*", "fc.bias"]


@settings(deadline=None, max_examples=200)
@given(KEYS, st.data())
def test_patterns_match_what_goes_and_nothing_that_stays(keys: list[str], data: st.DataObject) -> None:
    """Whatever the keys look like: the patterns cover those that go, and none of the others."""
    going = [key for key in keys if data.draw(st.booleans())]
    staying = [key for key in keys if key not in going]
    found = key_patterns(going, staying)
    for key in going:
        assert any(fnmatchcase(key, pattern) for pattern in found)
    for key in staying:
        assert not any(fnmatchcase(key, pattern) for pattern in found)


def test_keys_of_a_million_dots_cost_little() -> None:
    """A key that is built to be taken apart endlessly is only looked at from its beginning."""
    key = "." * 1_000_000 + "weight"
    assert key_patterns([key], ["a"]) == [".*"]
    assert wording.grouped_keys({key: 1, "b.c": 2}, 1)[0].parameters == 2
    assert missing_keys.nearest_key(key, (1,), {key: (1,)}) == key


TOKEN = st.sampled_from(["a", "b", "attn", "bias", "weight", "x*", "[0]", "0"])
NAMES = st.lists(st.lists(TOKEN, min_size=1, max_size=4).map(".".join), min_size=2, max_size=12, unique=True)


@given(NAMES, st.data())
@settings(max_examples=80, deadline=None)
def test_patterns_drop_exactly_what_is_to_go(keys: list[str], data: st.DataObject) -> None:
    """The options of a repair mean the same keys as its edits."""
    going = data.draw(st.sets(st.sampled_from(keys), min_size=1, max_size=len(keys) - 1))
    contents: dict[str, object] = {"model": {key: T((2, 2)) for key in keys}, "epoch": 1}
    checkpoint = nouns.checkpoint(contents)
    tensors = [tensor for tensor in checkpoint.tensors if tensor.key in going]
    found = dropped_paths(checkpoint, tuple(drop_patterns(checkpoint, tensors)))
    assert {path[-1] for path in found} == going


def test_patterns_spare_the_other_networks_of_a_checkpoint() -> None:
    """An ending that another network's keys have is no pattern, although the file's first network has none such."""
    norms_of = {f"{n}.running_mean": T((4,)) for n in range(3)}
    checkpoint = nouns.checkpoint({"generator": {"a.0.running_mean": T((4,)), "b": T((2, 2))}, "critic": norms_of})
    [tensor] = [tensor for tensor in checkpoint.tensors if tensor.key.startswith("a.")]
    assert drop_patterns(checkpoint, [tensor]) == ["a.*"]
