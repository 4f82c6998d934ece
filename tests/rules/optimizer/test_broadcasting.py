"""torch's refusals of shapes, word for word."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.rules.optimizer.optimizer_order_mismatch import in_place_refusal

SHAPES = st.lists(st.sampled_from([1, 2, 3, 0]), max_size=4).map(tuple)


@given(SHAPES, SHAPES)
def test_refusals_are_worded_as_torch_does(output: tuple[int, ...], other: tuple[int, ...]) -> None:
    """Whatever the two shapes: the same words as torch, or none where torch has none."""
    said = None
    try:
        torch.empty(output).add_(torch.empty(other))
    except RuntimeError as error:
        said = str(error)
    assert in_place_refusal(output, other) == said
