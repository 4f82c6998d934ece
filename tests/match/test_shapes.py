"""What shapes say about why a checkpoint does not fit, over the shapes of real models."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import Shapes, explained_by_shapes, shapes, sweeping
from ckptdoctor.match.shapes.pairs import block, is_index
from ckptdoctor.rules.examples import T
from tests.match import architectures as known
from tests.match.architectures import SIZES, Contents, family
from tests.rules import nouns
from tests.work import growth


def foreign(contents: Contents) -> Contents:
    """The same layers under names that no code base is known by: then shapes are all that there is."""
    return {key.replace("model.layers", "net.blocks"): each for key, each in contents.items()}


# what one side is, what the other is, and which parts of Shapes speak
CASES: dict[str, tuple[Contents, Contents, set[str]]] = {
    "other classes": (known.resnet18(), known.resnet18(classes=10), {"heads"}),
    "grey images": (known.resnet18(), known.resnet18(channels=1), {"channels"}),
    "both": (known.resnet50(), known.resnet50(channels=1, classes=10), {"heads", "channels"}),
    "larger images": (known.vit(), known.vit(patches=576), {"positions"}),
    "larger images and other classes": (known.vit(), known.vit(patches=576, classes=10), {"positions", "heads"}),
    "a larger window": (known.swin(), known.swin(12), {"positions"}),
    "another vocabulary": (known.bert(), known.bert(vocabulary=28996), {"vocabulary"}),
    "longer texts": (known.bert(), known.bert(positions=1024), {"positions"}),
    "half the layers": (known.bert(), known.bert(6), {"size"}),
    "Conv1D for Linear": (known.gpt2(), known.gpt2(conv1d=False), {"transposed"}),
    "Linear for Conv1D": (known.gpt2(conv1d=False), known.gpt2(), {"transposed"}),
    "Conv1D and a padded vocabulary": (
        known.gpt2(),
        known.gpt2(conv1d=False, vocabulary=50304),
        {"transposed", "vocabulary"},
    ),
    "one more token": (known.llama(vocabulary=32001), known.llama(), {"vocabulary"}),
    "fused attention": (known.llama(qkv=True), known.llama(), {"qkv"}),
    "Phi-3's projections with fewer keys": (
        foreign(known.llama(keys=1024)),
        foreign(known.llama(keys=1024, qkv=True, gate_up=True)),
        {"qkv", "gates"},
    ),
    "stacked experts": (foreign(known.mixtral(stacked=True)), foreign(known.mixtral(stacked=False)), {"experts"}),
    "experts apart": (foreign(known.mixtral(stacked=False)), foreign(known.mixtral(stacked=True)), {"experts"}),
    "one of two ranks": (known.llama_rank(2), known.llama_rank(1), {"shards"}),
    "one of eight ranks": (known.llama_rank(8), known.llama_rank(1), {"shards"}),
    "narrower feed-forward layers everywhere": (known.llama(inner=5504), known.llama(), {"size"}),
}
UNSURE: dict[str, tuple[Contents, Contents]] = {
    "one of two ranks of another model": (known.llama_rank(2), known.llama_rank(1, 32, 4096, 11008)),
    "fewer keys and values": (known.llama(keys=1024), known.llama()),
}
each_case = pytest.mark.parametrize("name", CASES)


def _speaking(found: Shapes) -> set[str]:
    return {field for field in Shapes.__dataclass_fields__ if getattr(found, field)}


def _left(comparison: Comparison) -> list[str]:
    """The keys that do not fit, and of which no rule about shapes speaks."""
    known_keys, renamed = explained_by_shapes(comparison), comparison.renamed
    return [
        *sorted(set(renamed.missing) - known_keys.missing),
        *sorted(set(renamed.unexpected) - known_keys.unexpected),
        *sorted(set(renamed.mismatched) - known_keys.mismatched),
    ]


@each_case
def test_each_cause_is_told_and_nothing_else(name: str) -> None:
    """Every key that does not fit has its one cause, and no other cause is named."""
    here, there, wanted = CASES[name]
    comparison = nouns.comparison(here, there)
    assert _speaking(shapes(comparison)) == wanted
    assert _left(comparison) == []
    assert sweeping(comparison)


@each_case
def test_the_order_of_keys_is_not_needed(name: str) -> None:
    """The same is found where both sides are sorted by name, as safetensors does."""
    here, there, wanted = CASES[name]
    comparison = nouns.comparison(dict(sorted(here.items())), dict(sorted(there.items())))
    assert _speaking(shapes(comparison)) == wanted
    assert _left(comparison) == []


@each_case
def test_wrappers_are_looked_through(name: str) -> None:
    """The same is found under the names that are left after the renames."""
    here, there, wanted = CASES[name]
    wrapped = {"epoch": 3, "state_dict": {f"module.{key}": value for key, value in here.items()}}
    comparison = nouns.comparison(wrapped, there)
    assert _speaking(shapes(comparison)) == wanted
    assert _left(comparison) == []


@pytest.mark.parametrize("name", UNSURE)
def test_what_could_be_several_things_is_left_alone(name: str) -> None:
    """Where no single cause explains the shapes, none is named."""
    here, there = UNSURE[name]
    comparison = nouns.comparison(here, there)
    assert _speaking(shapes(comparison)) == set()
    assert not sweeping(comparison)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_a_model_is_told_from_every_other(name: str) -> None:
    """Another size of the same family is the wrong size; itself and other families say nothing at all."""
    _told_from(name, SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_a_model_is_told_from_the_next(name: str) -> None:
    """The same of itself and of the one after it in the list, which may be of its family or of another."""
    names = [*SIZES, *SIZES]
    at = names.index(name)
    _told_from(name, names[at : at + 2])


def _told_from(name: str, others: Iterable[str]) -> None:
    for other in others:
        contents = SIZES[other]
        comparison = nouns.comparison(SIZES[name], contents)
        found = _speaking(shapes(comparison))
        if other != name and family(other) == family(name):
            assert found == {"size"}, other
            assert _left(comparison) == [], other
        else:
            assert found == set(), other


def test_well_known_models_have_their_names() -> None:
    """Depth and width of every model in the list give its name."""
    for name, contents in SIZES.items():
        other = next(each for each in SIZES if each != name and family(each) == family(name))
        found = shapes(nouns.comparison(contents, SIZES[other])).size
        assert found is not None
        assert found.here.known is not None, name
        assert found.here.known.name == name


def test_a_cause_is_found_once_for_each_comparison() -> None:
    """Every rule that asks gets the same answer, which is not worked out again."""
    comparison = nouns.comparison(*CASES["both"][:2])
    assert shapes(comparison) is shapes(comparison)


_SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 4, 8]), max_size=4).map(tuple)
_KEYS = st.sampled_from(
    ["fc.weight", "fc.bias", "conv1.weight", "embed_tokens.weight", "lm_head.weight", "pos_embed", "logit_scale"]
    + [
        "relative_position_bias_table",
        "relative_position_index",
        "weight",
        "",
        "0.0.weight",
        "..",
        "experts.0.w1.weight",
    ]
    + [f"layers.{index}.{name}" for index in range(3) for name in ("qkv.weight", "q_proj.weight", "norm.weight")]
    + ["layers.0.k_proj.weight", "layers.0.v_proj.weight", "experts.w1", "mlp.gate_up_proj.weight", "mlp.w1.weight"]
)
_CONTENTS = st.dictionaries(_KEYS, _SHAPES.map(T), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(here=_CONTENTS, there=_CONTENTS)
def test_no_key_has_two_causes(here: Contents, there: Contents) -> None:
    """Whatever the shapes, each key is explained once at most, and only keys that do not fit are."""
    comparison = nouns.comparison(here, there)
    found = shapes(comparison)
    groups = [[pair.key for pair in head.pairs] for head in found.heads]
    groups += [[pair.key for pair in each.pairs] for each in found.positions]
    groups += [[pair.key for pair in pairs] for pairs in (found.placeholders, found.units, found.inflated)]
    groups += [list(each.reversed) for each in found.transposed]
    groups += [[pair.key for pair in found.vocabulary.pairs]] if found.vocabulary is not None else []
    groups += [[found.channels.key]] if found.channels is not None else []
    groups += [[*found.shards.rows, *found.shards.columns]] if found.shards is not None else []
    groups += [list(found.size.mismatched)] if found.size is not None else []
    keys = list(chain.from_iterable(groups))
    assert len(keys) == len(set(keys))
    renamed, known_keys = comparison.renamed, explained_by_shapes(comparison)
    assert known_keys.mismatched == set(keys) <= set(renamed.mismatched)
    assert known_keys.missing <= set(renamed.missing)
    assert known_keys.unexpected <= set(renamed.unexpected)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["width", "fused", "turned"])
def test_the_work_grows_with_the_number_of_keys(change: str) -> None:
    """Not with its square: 20,000 keys on both sides are about ten times the work of 2,000."""
    made = {
        "width": lambda layers: (known.llama(layers, 64, 160, 320), known.llama(layers, 96, 240, 320)),
        "fused": lambda layers: (known.llama(layers, 64, 160, 320, qkv=True), known.llama(layers, 64, 160, 320)),
        "turned": lambda layers: (known.gpt2(layers, 64), known.gpt2(layers, 64, conv1d=False)),
    }[change]
    compared = {layers: nouns.comparison(*made(layers)) for layers in (200, 2_000)}
    # what is known of a comparison is kept with it: the first look is the one that counts
    assert growth(lambda layers: shapes(compared[layers]), 200, 2_000, runs=1) < 40
    assert _speaking(shapes(compared[2_000])) == {{"width": "size", "fused": "qkv", "turned": "transposed"}[change]}


def test_hostile_keys_cost_no_more_than_their_length() -> None:
    """Keys of many dots, of digits that are no numbers and of very long numbers are taken apart like any other."""
    assert not is_index("²")
    assert not is_index("9" * 5000)
    assert block("a." * 100_000 + "0.weight") == ("a." * 99_999 + "a", 0, "weight")
    long = "experts." * 50_000
    comparison = nouns.comparison({f"{long}weight": T((1,)), "²": T((2,))}, {f"{long}0.weight": T((2,)), "²": T((3,))})
    assert _speaking(shapes(comparison)) == set()
