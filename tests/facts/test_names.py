"""Keys as tokens."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.facts import names
from ckptdoctor.rules.examples import T
from tests.rules import nouns

TOKENS = ("module", *sorted(names.WRAPPERS), "conv", "0", "weight")


def _state_dict(contents: dict[str, object]) -> object:
    return nouns.checkpoint(contents).state_dicts[0]


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("module.conv.weight", "conv.weight"),
        ("module.module.conv.weight", "conv.weight"),
        ("module._orig_mod.module.conv.weight", "_orig_mod.conv.weight"),
        ("_orig_mod.module.weight", "_orig_mod.weight"),
        ("module.module", "module"),
        ("module", "module"),
        ("mlp_module.layer0.weight", "mlp_module.layer0.weight"),
        ("modules.0.weight", "modules.0.weight"),
        ("encoder.module.conv.weight", "encoder.module.conv.weight"),
        ("module.encoder.module.conv.weight", "encoder.module.conv.weight"),
        ("module._weight", "_weight"),
    ],
)
def test_only_leading_module_tokens_go(key: str, wanted: str) -> None:
    """``module`` goes from the start of a key, behind other wrappers too, and from nowhere else."""
    assert names.without_module(key) == wanted


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("_orig_mod.weight", "weight"),
        ("layers.0._orig_mod.weight", "layers.0.weight"),
        ("my_orig_mod.weight", "my_orig_mod.weight"),
        ("layers._orig_mod", "layers._orig_mod"),
        ("_orig_mod._orig_mod.a._orig_mod.b", "a.b"),
    ],
)
def test_a_wrapper_token_goes_wherever_it_stands(key: str, wanted: str) -> None:
    """A wrapper's token goes from anywhere in a key but its last place."""
    assert names.without_tokens(key, names.COMPILE) == wanted


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=7).map(".".join))
def test_the_fixes_commute_and_end(key: str) -> None:
    """Taking out each wrapper's tokens gives one result in any order, and doing it again changes nothing."""
    changes = [
        names.without_module,
        *(lambda key, tokens=tokens: names.without_tokens(key, tokens) for tokens in (names.COMPILE, names.FSDP)),
        lambda key: names.without_tokens(key, names.ACTIVATION_CHECKPOINT),
    ]
    results = set()
    for order in itertools.permutations(changes):
        now = key
        for change in order:
            now = change(now)
        results.add(now)
    assert results == {names.bare(key)}
    assert names.bare(names.bare(key)) == names.bare(key)


def test_the_quick_way_agrees_with_the_tokens() -> None:
    """Stripping ``module.`` gives what taking the key apart gives, for every short key."""
    for tokens in itertools.product(("module", "_orig_mod", "a", "_b"), repeat=3):
        run = names.leading(".".join(tokens))
        kept = [token for token in run if token != "module"]
        assert names.without_module(".".join(tokens)) == ".".join([*kept, *tokens[len(run) :]])


def test_two_keys_that_would_become_one_are_named() -> None:
    """A renaming that is not one-to-one says which two keys collide and under which name."""
    found = names.renaming(["module.a", "b", "a"], names.without_module)
    assert found.collision == ("module.a", "a", "a")
    assert names.renaming(["module.a", "b"], names.without_module, ["a"]) == found


def test_a_one_to_one_renaming_lists_what_changes() -> None:
    """Only keys that get another name are in the pairs."""
    found = names.renaming(["module.a", "b"], names.without_module)
    assert found == names.Renaming((("module.a", "a"),))


def test_module_at_the_start_is_told_from_module_further_inside() -> None:
    """It is a token of its own, and other wrappers may stand before it."""
    keys = ["module.a.weight", "_orig_mod.module.a.weight", "a.module.weight", "a.module", "mlp_module.a"]
    assert names.module_led(keys) == keys[:2]


@pytest.mark.parametrize(
    ("contents", "counter"),
    [
        ({"n_averaged": T((), "int64"), "module.weight": T((2,))}, "n_averaged"),
        ({"_orig_mod.n_averaged": T((), "int64"), "_orig_mod.module.weight": T((2,))}, "_orig_mod.n_averaged"),
        ({"module.n_averaged": T((), "int64"), "module.module.weight": T((2,))}, "module.n_averaged"),
        ({"module.n_averaged": T((), "int64"), "module.weight": T((2,))}, None),
        ({"n_averaged": T((), "int64"), "module.weight": T((2,)), "b": T((2,))}, None),
        ({"n_averaged": T(()), "module.weight": T((2,))}, None),
        ({"module.weight": T((2,))}, None),
    ],
)
def test_an_averaged_model_is_told_by_its_counter(contents: dict[str, object], counter: str | None) -> None:
    """The counter counts only where everything else lies in ``module.`` below it."""
    found = names.average_counter(_state_dict(contents))  # type: ignore[arg-type]
    assert (found.key if found else None) == counter


def test_keys_are_remembered_for_their_own_state_dict_only() -> None:
    """Many state dicts one after another each give their own keys."""
    for number in range(30):
        state_dict = _state_dict({f"layer{number}.weight": T((2,))})
        assert names.keys_of(state_dict) == (f"layer{number}.weight",)  # type: ignore[arg-type]
        assert names.mentions(state_dict, (f"layer{number}",))  # type: ignore[arg-type]


def test_flat_parameters_are_told_by_their_last_token() -> None:
    """``_flat_param`` and ``flat_param_0`` are flat parameters, ``flat_params.weight`` is none."""
    assert names.flat_parameter(["a.weight", "_fsdp_wrapped_module._flat_param"]) == "_fsdp_wrapped_module._flat_param"
    assert names.flat_parameter(["a.flat_param_0"]) == "a.flat_param_0"
    assert names.flat_parameter(["flat_params.weight", "a.flat_param_x"]) is None


def test_a_word_is_mentioned_where_some_key_holds_it() -> None:
    """Anywhere in a key, digit for digit; not across two keys."""
    keys = _state_dict({"layers.12.lora_A.weight": T((2,)), "ia3_l": T((2,)), "b\nc": T((2,))})
    assert names.mentions(keys, ("lora_",))
    assert names.mentions(keys, ("none", "ers.12."))
    assert names.mentions(keys, ("b\nc",))
    assert not names.mentions(keys, ("ers.13.", "ia4_l", "weightia3"))
    assert not names.mentions(keys, ())


@given(st.lists(st.text(alphabet="ab.\n0123456789\u0663é")))
def test_the_form_of_a_key_has_a_zero_for_every_digit(keys: list[str]) -> None:
    """One form for each key, in their order and of their length, whatever stands in them."""
    wanted = ["".join("0" if letter in "0123456789" else letter for letter in key) for key in keys]
    assert list(names.forms(keys)) == wanted
