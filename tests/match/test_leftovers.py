"""What is left over, shared out among the rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.match import norms
from ckptdoctor.match.comparison import Comparison, Explained
from ckptdoctor.match.leftovers import Leftovers, explained, leftovers
from ckptdoctor.rules.examples import Odict, T
from tests.rules import nouns
from tests.work import growth

BODY: dict[str, object] = {
    "conv.weight": T((4, 3, 3, 3)),
    "bn.weight": T((4,)),
    "bn.bias": T((4,)),
    "bn.running_mean": T((4,)),
    "bn.running_var": T((4,)),
    "mlp.weight": T((4, 4)),
    "fc.weight": T((2, 4)),
}
MORE: dict[str, object] = {
    "bn.num_batches_tracked": T((), "int64"),
    "embeddings.position_ids": T((1, 8), "int64"),
    **{f"{module}.total_ops": T((1,), "float64") for module in ("conv", "bn", "mlp", "fc", "embeddings")},
    "fc._extra_state": T((8,), "uint8"),
    "criterion.weight": T((9,)),
    "criterion.num_batches_tracked": T((), "int64"),
    "in.running_mean": T((4,)),
    "_flat_param": T((11,)),
}
OTHERS: dict[str, object] = {"aux.0.weight": T((3, 7)), "aux.0.bias": T((3,)), "aux.1.weight": T((5, 3, 1, 1))}


def _shares(found: Leftovers) -> list[str]:
    """Every key of every share."""
    several = [each.keys for some in (found.stats, found.blocks, found.aliases) for each in some]
    alone = [found.flat, found.counters, found.derived, found.profiled, found.extra]
    missing = [found.uncounted, found.unasked, found.derived_missing, found.extra_missing]
    return [key for keys in (*several, *alone, *missing) for key in keys]


def test_each_key_goes_to_the_rule_that_can_say_why() -> None:
    """A block beside the model takes all that lies in it, and R002 is silent."""
    here = {"conv.weight": BODY["conv.weight"], "in.running_mean": MORE["in.running_mean"], **BODY, **MORE}
    comparison = nouns.comparison(here, BODY)
    found = leftovers(comparison)
    assert found.counters == ("bn.num_batches_tracked",)
    assert found.derived == ("embeddings.position_ids",)
    assert found.profiled == tuple([key for key in MORE if key.endswith("total_ops")])
    assert found.extra == ("fc._extra_state",)
    assert found.flat == ("_flat_param",)
    assert [(block.name, len(block.keys)) for block in found.blocks] == [("criterion", 2)]
    assert [each.keys for each in found.stats] == [("in.running_mean",)]
    assert explained(comparison).unexpected == set(comparison.renamed.unexpected)
    assert nouns.findings_in("R002", comparison.checkpoint, comparison.reference) == []


def test_what_nobody_explains_is_still_listed() -> None:
    """R002 lists the rest, and counts it alone."""
    [found] = nouns.findings("R002", {**BODY, **MORE, **OTHERS}, BODY)
    assert [path[-1] for path in found.keys if path[-1] in MORE] == ["in.running_mean"]  # behind no convolution
    assert {path[-1] for path in found.keys} >= set(OTHERS)


def test_a_count_that_n420_leaves_alone_is_listed() -> None:
    """Where the rule about profilers does not speak, R002 does: no key is nobody's."""
    body: dict[str, object] = {f"layer{number}.weight": T((4, 4)) for number in range(5)}
    contents = {**body, "layer0.total_ops": T((1,), "float64")}
    assert nouns.findings("N420", contents, body) == []
    assert len(nouns.findings("R002", contents, body)) == 1
    contents |= {f"layer{number}.total_params": T((1,), "float64") for number in range(5)}
    assert len(nouns.findings("N420", contents, body)) == 1
    assert nouns.findings("R002", contents, body) == []


def test_missing_keys_are_shared_out_too() -> None:
    """Counters that torch does not ask for are nobody's trouble; buffers and extra state have their rules."""
    comparison = nouns.comparison(BODY, {**BODY, **{key: MORE[key] for key in list(MORE)[:2]}})
    found = leftovers(comparison)
    assert found.unasked == ("bn.num_batches_tracked",)
    assert found.uncounted == ()
    assert found.derived_missing == ("embeddings.position_ids",)
    assert nouns.findings_in("R001", comparison.checkpoint, comparison.reference) == []
    assert norms.uncounted(comparison, "bn.num_batches_tracked")
    assert not norms.uncounted(comparison, "bn.weight")


def test_a_counter_that_torch_asks_for_is_not_set_by_torch() -> None:
    """The version of its layer decides, under the name that the layer has in the file."""
    here = Odict({f"module.{key}": value for key, value in BODY.items()}, {"module.bn": {"version": 2}})
    comparison = nouns.comparison(here, {**BODY, "bn.num_batches_tracked": MORE["bn.num_batches_tracked"]})
    assert leftovers(comparison).uncounted == ("bn.num_batches_tracked",)
    assert not norms.uncounted(comparison, "bn.num_batches_tracked")
    assert norms.final_versions(comparison) == {"bn": ("module.bn", 2)}


def test_another_model_leaves_nothing_to_share_out() -> None:
    """Where W311 speaks, no rule takes a share."""
    other: dict[str, object] = {f"x{number}.weight": T((7, 7)) for number in range(9)}
    comparison = nouns.comparison({**other, **MORE}, BODY)
    assert comparison.uncovered
    assert _shares(leftovers(comparison)) == []


def test_what_rules_explain_is_united() -> None:
    """``|`` of two is what either explains."""
    one, other = Explained(frozenset("a"), frozenset("b")), Explained(mismatched=frozenset("c"))
    assert one | other == Explained(frozenset("a"), frozenset("b"), frozenset("c"))
    assert Explained() | one == one


ANY = {**BODY, **MORE, **OTHERS}
KEYS = st.sets(st.sampled_from(sorted(ANY)))


@given(KEYS, KEYS)
@settings(max_examples=60, deadline=None)
def test_no_key_has_two_rules(here: set[str], there: set[str]) -> None:
    """Whatever is missing and whatever is left over, a key is in one share at most, and only if it is left over."""
    core = {key: BODY[key] for key in list(BODY)[:6]}
    comparison = nouns.comparison(
        core | {key: ANY[key] for key in sorted(here)}, core | {key: ANY[key] for key in sorted(there)}
    )
    shares = _shares(leftovers(comparison))
    assert len(set(shares)) == len(shares)
    assert set(shares) <= {*comparison.renamed.missing, *comparison.renamed.unexpected}
    assert explained(comparison).unexpected <= set(comparison.renamed.unexpected)
    assert explained(comparison).missing <= set(comparison.renamed.missing)


def _large(layers: int) -> tuple[dict[str, object], dict[str, object]]:
    """A model of many layers with norms, and the same with everything that may be left over."""
    wanted: dict[str, object] = {}
    here: dict[str, object] = {}
    for layer in range(layers):
        body = {f"h.{layer}.{key}": value for key, value in BODY.items()}
        wanted |= body
        here |= body
        here[f"h.{layer}.bn.num_batches_tracked"] = T((), "int64")
        here[f"h.{layer}.attn.bias"] = T((1, 1, 8, 8))
        here[f"h.{layer}.in.running_mean"] = T((2,))
    return here, wanted


def _compared(layers: int) -> Comparison:
    return nouns.comparison(*_large(layers))


@pytest.mark.slow
def test_the_work_grows_with_the_number_of_keys() -> None:
    """No rule looks at every pair of keys, and neither do the patterns."""
    given = {layers: _compared(layers) for layers in (500, 5_000)}
    assert len(given[5_000].renamed.here) == 50_000

    def sorted_out(layers: int) -> None:
        assert len(leftovers(given[layers]).counters) == layers
        assert nouns.findings_in("R002", given[layers].checkpoint, given[layers].reference) == []

    assert growth(sorted_out, 500, 5_000, runs=1) < 40
