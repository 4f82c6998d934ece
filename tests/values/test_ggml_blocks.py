"""Blocks of GGUF as numbers, as llama.cpp's gguf package has them."""

from __future__ import annotations

import numpy as np
import pytest

from ckptdoctor.values.ggml_blocks import LEVELS, REACH, dequantized

# bytes of a block
_LONG = {"Q2_K": 84, "Q3_K": 110, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210, "IQ4_XS": 136}
_SHORT = {"Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q8_0": 34, "IQ4_NL": 18, "MXFP4": 17}
BYTES = _LONG | _SHORT


def random_blocks(kind, count=64, seed=0):
    """Bytes of such blocks in which every float16 is a usual number."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (count, BYTES[kind]), dtype=np.uint8)
    places = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "Q4_K": (0, 2), "Q5_K": (0, 2), "MXFP4": ()}
    for place in places.get(kind, (0, 2) if kind.endswith("_1") else (0,)):
        raw[:, place : place + 2] = rng.normal(0, 1, (count, 1)).astype(np.float16).view(np.uint8)
    if kind == "MXFP4":
        raw[:, 0] = rng.integers(0, 250, count)
    return raw


@pytest.mark.parametrize("kind", LEVELS)
def test_numbers_are_those_of_the_gguf_package(kind):
    """Bit for bit, whatever the codes and scales."""
    gguf = pytest.importorskip("gguf")
    raw = random_blocks(kind)
    theirs = gguf.quants.dequantize(raw.reshape(-1), gguf.GGMLQuantizationType[kind])
    assert dequantized(raw, kind)[0].reshape(-1).tolist() == theirs.reshape(-1).tolist()


@pytest.mark.parametrize("kind", LEVELS)
def test_levels_are_a_step_apart(kind):
    """Numbers of one group differ by whole steps where levels are even, and neighbours by a step at most elsewhere."""
    made, steps = dequantized(random_blocks(kind, 500), kind)
    groups = np.sort(made.reshape(-1, made.shape[1] // steps.shape[1]), axis=1)
    step = np.where(steps == 0, 1, steps).reshape(-1, 1)
    gaps = np.diff(groups, axis=1) / step
    if kind in ("IQ4_NL", "IQ4_XS", "MXFP4"):
        assert (gaps <= 1.001).mean() > 0.9
    else:
        rounding = 1e-6 * np.abs(groups).max(axis=1, keepdims=True) / step
        assert (np.abs(gaps - np.round(gaps)) <= rounding + 1e-4).all() and (np.round(gaps) == 1).any()
    assert set(REACH) == set(LEVELS)
