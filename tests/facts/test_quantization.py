"""What shapes tell of quantised layers, whatever they are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.facts.quantization import block_of, quantized
from ckptdoctor.rules.examples import T
from tests.rules import nouns

LEAVES = [
    *("weight", "SCB", "weight_format", "qweight", "qzeros", "scales", "g_idx", "weight_scale", "weight_scale_inv"),
    *("weight.absmax", "weight.quant_map", "weight.quant_state.bitsandbytes__nf4", "weight.nested_absmax"),
    *("weight.nested_quant_map", "weight_packed", "scale_weight", "input_scale", "weight_zero_point", "k_blocks"),
    *("k_scales", "_scale", "bias"),
]
DTYPES = ["uint8", "int8", "int32", "float32", "bfloat16", "float8_e4m3fn", "bool"]
SHAPES = st.lists(st.sampled_from([0, 1, 2, 16, 32, 33, 64, 128]), max_size=4).map(tuple)
STATES = st.dictionaries(
    st.sampled_from([f"{module}{leaf}" for module in ("", "a.", "b.c.") for leaf in LEAVES]),
    st.builds(T, SHAPES, st.sampled_from(DTYPES)),
    max_size=14,
)


@pytest.mark.parametrize(
    ("weight", "scale", "block"),
    [
        ((7168, 2048), (56, 16), (128, 128)),
        ((576, 7168), (5, 56), (128, 128)),
        ((64, 32), (64, 1), (1, 0)),
        ((64, 32), (64,), (1, 0)),
        ((64, 32), (), (0, 0)),
        ((64, 32), (1, 1), (0, 0)),
        ((64, 96), (64, 3), (1, 32)),
        ((8, 256, 256), (8, 2, 2), (128, 128)),
        ((8, 256, 256), (8, 1, 1), (0, 0)),
        ((64, 32), (3, 5), ()),
        ((64, 32), (32,), ()),
        ((64,), (64,), ()),
        ((4, 256, 256), (8, 2, 2), ()),
    ],
)
def test_the_block_that_shares_a_scale(weight, scale, block):
    """In rows and columns; 0 stands for all, and nothing is said of shapes that do not fit."""
    assert block_of(weight, scale) == block


def test_a_reference_may_not_know_dtypes():
    """Then names and shapes have to do."""
    names = {"fc.qweight": (32, 64), "fc.scales": (2, 64), "fc.g_idx": (256,)}
    (layer,) = quantized({key: Expected(shape) for key, shape in names.items()}).layers
    assert (layer.key, layer.bits, layer.shape, layer.block) == ("fc.weight", 4, (64, 256), (1, 128))
    assert quantized({"fc.weight": Expected((4, 4)), "fc.weight_scale": Expected((4,))}).layers == ()


@given(STATES, STATES)
@settings(max_examples=20)
def test_nothing_that_is_called_so_breaks_a_rule(one, other):
    """Any shapes and dtypes under these names, on both sides."""
    _asked(one, other)


@pytest.mark.slow
@given(STATES, STATES)
@settings(max_examples=300)
def test_nothing_of_much_that_is_called_so_breaks_a_rule(one, other):
    """The same of fifteen times as many."""
    _asked(one, other)


def _asked(one, other):
    for rule in ("Q951", "Q952", "Q953", "Q956", "Q957"):
        nouns.findings(rule, {**one, "x": T((1,))})
        if rule != "Q957":
            nouns.findings(rule, {**one, "x": T((1,))}, {**other, "y": T((1,))})
    assert all(each.dtype in BY_NAME for each in one.values())
