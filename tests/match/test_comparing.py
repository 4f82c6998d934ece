"""Checkpoints held against references."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint.expectation import CoverageStep
from ckptdoctor.match.comparison import align
from ckptdoctor.match.prefixes import best_prefix
from ckptdoctor.rules.examples import T
from tests.rules import nouns

NET = {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4)), "fc.bias": T((2,))}
PARAMETERS = 108 + 8 + 2


def _under(prefix: str) -> dict[str, object]:
    return {prefix + key: value for key, value in NET.items()}


def test_every_key_is_sorted_into_one_drawer() -> None:
    """Keys fit, miss, are unexpected or have another shape; other dtypes fit and are noted."""
    here = {"fc.weight": T((5, 4)), "fc.bias": T((2,), "float64"), "extra.weight": T((1,))}
    found = nouns.comparison(here, NET).plain
    assert found.fits == ("fc.bias",)
    assert found.recast == ("fc.bias",)
    assert found.mismatched == ("fc.weight",)
    assert found.missing == ("conv.weight",)
    assert found.unexpected == ("extra.weight",)
    assert found.parameters == 2


def test_the_same_model_fits_without_a_step() -> None:
    """Nothing is proposed where everything fits."""
    coverage = nouns.comparison(NET, NET).coverage
    assert (coverage.keys, coverage.total_keys, coverage.parameters) == (3, 3, PARAMETERS)
    assert coverage.total_parameters == PARAMETERS
    assert coverage.steps == ()


def test_each_step_says_what_fits_after_it() -> None:
    """Taking the inner dict gains nothing yet, stripping the prefix everything; as it is nothing fits."""
    coverage = nouns.comparison({"epoch": 1, "state_dict": _under("model.")}, NET).coverage
    assert (coverage.keys, coverage.parameters) == (0, 0)
    assert coverage.state_dict == ("state_dict",)
    assert coverage.steps == (
        CoverageStep("extract state_dict", "W301", 0, 0),
        CoverageStep('strip "model."', "N409", 3, PARAMETERS),
    )


def test_wrappers_and_a_prefix_are_undone_one_after_another() -> None:
    """Names of wrappers go first, then the one prefix that is left."""
    steps = nouns.comparison(_under("module._orig_mod.model."), NET).coverage.steps
    assert [(step.code, step.keys) for step in steps] == [("N401", 0), ("N404", 0), ("N409", 3)]


def test_a_wrapped_target_keeps_its_names() -> None:
    """What the reference's own keys have is never taken away."""
    assert nouns.comparison(_under("module."), _under("module.")).coverage.steps == ()
    steps = nouns.comparison(_under("module._orig_mod."), _under("module.")).coverage.steps
    assert [(step.code, step.keys) for step in steps] == [("N404", 3)]


def test_the_state_dict_that_fits_best_is_compared() -> None:
    """Of several models in a file the one that fits the reference is taken."""
    other = {"encoder.weight": T((9, 9)), "encoder.bias": T((9,))}
    found = nouns.comparison({"discriminator": other, "generator": NET}, NET)
    assert found.path == ("generator",)
    assert found.rivals == ()


def test_equals_are_named_as_rivals() -> None:
    """Two sets of weights that fit alike are both named, and the first is compared."""
    found = nouns.comparison({"student": NET, "teacher": NET}, NET)
    assert found.path == ("student",)
    assert [each.path for each in found.rivals] == [("teacher",)]


def test_averaged_weights_are_taken_where_there_are_no_others() -> None:
    """An EMA state dict is compared only where the file has no plain one."""
    assert nouns.comparison({"ema": NET, "model": NET}, NET).path == ("model",)
    assert nouns.comparison({"ema": NET, "epoch": 1}, NET).path == ("ema",)


def test_a_chosen_root_is_no_step() -> None:
    """Who names the state dict by hand is not told to take it."""
    found = nouns.comparison({"epoch": 1, "model": NET}, NET, root=("model",))
    assert not found.nested
    assert found.coverage.steps == ()


def test_a_file_that_is_laid_out_like_the_reference_is_not_nested() -> None:
    """Weights at the reference's own place lie where they should."""
    assert not nouns.comparison({"model": NET}, {"epoch": 1, "model": NET}).nested


def test_a_file_without_weights_covers_nothing() -> None:
    """No state dict at all compares as nothing, without an error."""
    found = nouns.comparison({"epoch": 1}, NET)
    assert found.state_dict is None
    assert found.uncovered
    assert len(found.renamed.missing) == 3


def test_a_prefix_needs_more_than_a_coincidence() -> None:
    """An auxiliary head of the missing head's shape is no prefix to strip."""
    body = {f"layer{number}.weight": T((4, 4)) for number in range(20)}
    here = {**body, "aux.fc.weight": T((2, 4))}
    assert nouns.comparison(here, {**body, "fc.weight": T((2, 4))}).prefix is None


def test_a_prefix_is_never_stripped_into_a_collision() -> None:
    """Where stripping would give two keys one name, there is no prefix."""
    found = nouns.comparison({**_under("model."), "fc.bias": T((9,))}, NET)
    assert found.prefix is None


def test_shapes_must_agree_for_a_prefix() -> None:
    """Equal endings of other shapes do not speak for a prefix."""
    here = {f"model.{key}": T((7, 7, 7)) for key in NET}
    assert nouns.comparison(here, NET).prefix is None


def test_a_step_that_only_may_be_right_must_help() -> None:
    """``module.`` on some keys only is stripped where more fits then."""
    here = {"module.conv.weight": T((4, 3, 3, 3)), "module.fc.weight": T((2, 4)), "fc.bias": T((2,))}
    assert [step.code for step in nouns.comparison(here, NET).coverage.steps] == ["N401"]
    strange = {"module.x.weight": T((4, 3)), "module.y.weight": T((2, 4)), "fc.bias": T((2,))}
    assert nouns.comparison(strange, NET).coverage.steps == ()


@settings(deadline=None, max_examples=100)
@given(
    st.dictionaries(st.sampled_from(["a.weight", "b.weight", "c.d.weight", "e"]), st.integers(1, 3), min_size=1),
    st.sampled_from(["model.", "net.x.", "module.", "_orig_mod."]),
    st.booleans(),
)
def test_any_prefix_is_found_in_both_directions(sizes: dict[str, int], prefix: str, outer: bool) -> None:
    """Whatever a model's keys are: all of them fit again after one prefix was put before one side."""
    bare = {key: T((size,)) for key, size in {**sizes, "always.weight": 3}.items()}
    led = {prefix + key: value for key, value in bare.items()}
    found = nouns.comparison(bare, led) if outer else nouns.comparison(led, bare)
    assert len(found.renamed.fits) == len(bare)
    assert [found.final_name(tensor.key) for tensor in found.state_dict.tensors] == list(found.renamed.here)


def test_no_prefix_is_proposed_for_what_gains_nothing() -> None:
    """The best prefix must make more fit than fit already."""
    here = {tensor.key: tensor for tensor in nouns.checkpoint(NET).tensors}
    wanted = nouns.reference(NET).tensors
    assert best_prefix(here, wanted, len(align(here, wanted).fits)) is None


def test_keys_of_a_million_dots_cost_little() -> None:
    """A key that is built to be taken apart endlessly is only looked at from its beginning."""
    key = "." * 1_000_000 + "weight"
    assert len(nouns.comparison({key: T((1,)), "b.weight": T((2,))}, {key: T((2,)), "weight": T((2,))}).steps) == 1
