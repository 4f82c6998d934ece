"""Many renames are shown as few patterns, and each pattern stands for exactly its keys."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.rendering.grouping import grouped, in_short, pattern, shortened


def expanded(pattern):
    """Every key that a pattern stands for; patterns of these tests have no braces inside names."""
    places = []
    for token in re.findall(r"(?:[^.{}]|\{[^}]*\})+", pattern):
        found = re.fullmatch(r"(.*?)\{(.*)\}(.*)", token)
        if found is None:
            places.append([token])
            continue
        stem, inside, rest = found.groups()
        numbers = re.fullmatch(r"(\d+)\.\.(\d+)", inside)
        words = map(str, range(int(numbers[1]), int(numbers[2]) + 1)) if numbers else inside.split(",")
        places.append([f"{stem}{word}{rest}" for word in words])
    return {".".join(key) for key in itertools.product(*places)}


def test_layers_and_parts_become_one_line():
    """All combinations of numbers and names are one pattern."""
    old = [f"module.layer{n}.{b}.conv{c}.weight" for n in range(1, 5) for b in (0, 1) for c in (1, 2)]
    pairs = [(key, key.removeprefix("module.")) for key in old]
    assert list(grouped(pairs)) == [
        ("module.layer{1..4}.{0..1}.conv{1..2}.weight", "layer{1..4}.{0..1}.conv{1..2}.weight", 16)
    ]


def test_what_is_not_a_product_is_taken_apart():
    """Keys that are no combination of all tokens are several patterns."""
    old = ["a.conv.weight", "a.bn.weight", "a.bn.bias"]
    assert [count for _, _, count in grouped([(key, f"m.{key}") for key in old])] == [1, 2]


@given(st.sets(st.tuples(*[st.sampled_from("abc")] * 3), min_size=1))
def test_patterns_stand_for_exactly_the_keys(keys):
    """Whatever keys there are: the patterns together are these keys, each once, before and after."""
    pairs = [(f"old.{'.'.join(key)}", f"new.{'.'.join(key)}") for key in sorted(keys)]
    groups = list(grouped(pairs))
    assert sum(count for _, _, count in groups) == len(pairs)
    for side in (0, 1):
        found = [key for group in groups for key in expanded(group[side])]
        assert sorted(found) == sorted(pair[side] for pair in pairs)


def renames(*tokens):
    """Renames of the last token in three layers."""
    return [(f"layers.{layer}.norm.{old}", f"layers.{layer}.norm.{new}") for layer in range(3) for old, new in tokens]


def test_what_changes_at_the_end_is_shown():
    """A line that shows only where the names begin would be the same before and after."""
    pairs = renames(("gamma", "weight"), ("beta", "bias"))
    assert in_short(pairs) == [("*.gamma", "*.weight"), ("*.beta", "*.bias")]
    assert in_short(renames(*zip("abcd", "efgh", strict=True)))[3:] == [("…", "")]


def test_what_changes_at_the_beginning_is_shown_with_what_follows():
    """A prefix, a shift of indices, a single key."""
    assert in_short([("module.a.x", "a.x"), ("module.b.x", "b.x")]) == [("module.{a,b}.*", "{a,b}.*")]
    shifted = [(f"layers.{n}.w", f"layers.{n + 1}.w") for n in range(3)]
    assert in_short(shifted) == [("layers.{0..2}.*", "layers.{1..3}.*")]
    assert in_short([("a.b.c", "a.b.d")]) == [("a.b.c", "a.b.d")]


@given(st.lists(st.tuples(*[st.text("ab.", min_size=1)] * 2), min_size=1))
def test_any_renames_have_a_short_form(pairs):
    """Names of any form, equal ones too."""
    assert in_short(pairs)


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        (["conv1.weight"], "conv1.weight"),
        (["module.a.w", "module.b.w"], "module.{a,b}.*"),
        (["module.conv1.weight", "module.layer1.0.w", "module.layer2.0.w", "module.layer3.1.w", "module.fc.bias"],
         "module.{conv1,layer{1..3},fc}.*"),
        (["layers.0.w", "layers.1.w", "layers.2.w"], "layers.{0..2}.*"),
        (["layers.0.w", "layers.5.w"], "layers.{0…5}.*"),
        (["fc.weight", "fc.bias"], "fc.{weight,bias}"),
        (["a", "b"], "{a,b}"),
        (["a.w", "b"], "{a,b}.*"),
        (["a.b.w", "a.b.w.x"], "a.b.w.*"),
        ([f"m.{name}.w" for name in "abcdefgh"], "m.{a,b,c,d,e,f,…}.*"),
        (["x01.w", "x02.w"], "x0{1..2}.*"),
        (["", "a"], "{,a}"),
        (["x1.w", "x1.b"], "x1.{w,b}"),
    ],
)  # fmt: skip
def test_keys_become_one_pattern(keys: list[str], wanted: str):
    """What they share stands before the braces, numbered neighbours are folded, ``.*`` says that keys go on."""
    assert pattern(keys) == wanted


def test_huge_numbers_and_odd_keys_are_no_trouble():
    """Digits that are no index, line breaks, thousands of keys: the pattern stays short."""
    assert pattern(["a" + "9" * 5000, "b\n1"]) == "{a" + "9" * 5000 + ",b\n1}"
    assert pattern([f"module.layers.{i}.weight" for i in range(50_000)]) == "module.layers.{0..49999}.weight".replace(
        "weight", "*"
    )


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("h.{0..5}.{attention_query,attention_key,mlp}.w", "h.{0..5}.{attention_query,…}.w"),
        ("h.{alpha,layer{1..4},gamma,…}.bias", "h.{alpha,layer{1..4},…}.bias"),
        ("no_list_is_in_this_name_which_is_too_long", "no_list_is_in_this_…s_too_long"),
        ("{a_single_name_that_fills_the_whole_line,b}", "{a_single_name_that…le_line,…}"),
        ("}}{,,{odd}{signs}.{and,braces}.{that,fit}", "}}{,,{odd}{signs}.{…{that,fit}"),
    ],
)
def test_a_long_pattern_loses_whole_names(long, short):
    """The last of the longest list, and no name is cut as long as there is a list."""
    assert shortened(long, 30) == short
