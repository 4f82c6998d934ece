"""Statistics against those of torch and NumPy in float64, for every dtype."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.values.chunks import ChunkMeasure
from ckptdoctor.values.flat_chunks import CHUNK
from ckptdoctor.values.partial import Partial
from ckptdoctor.values.statistics import TensorValues
from ckptdoctor.values.summing_up import BINS, SAMPLE, summed_up
from tests.dtypes import known
from tests.values.reading import one

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
EIGHTS = [
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    *known("float8_e8m0fnu"),
]
INTEGERS = [
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool
]  # fmt: skip

# what sums in float32 may be off by: the mean relative to the root mean square, norm and std to themselves
MEAN, SPREAD = 2e-6, 1e-4


def holds(found: TensorValues, tensor: torch.Tensor) -> None:
    """The statistics of a tensor are those that NumPy and torch work out in float64."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    wide = (real.float() if real.element_size() == 1 and real.is_floating_point() else real).double().flatten()
    exact = wide.numpy()
    finite = exact[np.isfinite(exact)]
    assert found.count == exact.size
    assert found.nan == int(np.isnan(exact).sum())
    assert (found.positive_inf, found.negative_inf) == (int(np.isposinf(exact).sum()), int(np.isneginf(exact).sum()))
    assert found.zeros == int((exact == 0).sum())
    if not finite.size:
        return
    assert (found.min, found.max) == (finite.min(), finite.max())
    assert found.absmax == np.abs(finite).max()
    root = math.sqrt(float((finite**2).mean()))
    assert abs(found.mean - finite.mean()) <= MEAN * root
    assert found.std == pytest.approx(finite.std(), rel=SPREAD, abs=1e-9 * root)
    clean = wide[torch.isfinite(wide)]
    assert found.norm == pytest.approx(torch.linalg.vector_norm(clean).item(), rel=SPREAD)


def spread(dtype: torch.dtype, count: int) -> torch.Tensor:
    """Values of all kinds that a dtype holds."""
    torch.manual_seed(0)
    if dtype is torch.bool:
        return torch.rand(count) < 0.3
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        low, high = max(info.min, -(2**53)), min(info.max, 2**53)
        return torch.randint(low, high, (count,)).to(dtype)
    return (torch.randn(count) * 0.02).to(dtype)


@pytest.mark.parametrize("count", [5, 5_000, CHUNK + 77], ids=["few", "some", "chunks"])
@pytest.mark.parametrize("dtype", [*FLOATS, *EIGHTS, *INTEGERS], ids=str)
def test_statistics_of_every_dtype(tmp_path, dtype, count):
    """Counts and extremes are exact, sums within what float32 allows."""
    tensor = spread(dtype, count)
    holds(one(tmp_path, tensor), tensor)


@pytest.mark.parametrize("dtype", [torch.complex128, torch.complex64], ids=str)
def test_complex_numbers_are_two_real_ones(tmp_path, dtype):
    """Real and imaginary parts are counted alike."""
    tensor = torch.randn(3_000, dtype=dtype)
    holds(one(tmp_path, tensor), tensor)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("count", [40, CHUNK + 100])
def test_what_is_not_finite_is_counted_and_left_out(tmp_path, dtype, count):
    """NaN of either sign and infinities, wherever they lie; the rest is measured without them."""
    tensor = spread(dtype, count)
    tensor[3], tensor[-1], tensor[7], tensor[8] = float("nan"), -float("nan"), float("inf"), -float("inf")
    found = one(tmp_path, tensor)
    assert (found.nan, found.positive_inf, found.negative_inf) == (2, 1, 1)
    holds(found, tensor)


@pytest.mark.parametrize("dtype", EIGHTS, ids=str)
@pytest.mark.parametrize("count", [2, 100, CHUNK + 3])
def test_nan_in_every_float8_is_found(tmp_path, dtype, count):
    """One NaN among numbers."""
    tensor = torch.ones(count)
    tensor[-1] = float("nan")
    tensor = tensor.to(dtype)
    assert one(tmp_path, tensor).nan == 1
    assert one(tmp_path, tensor, only_finite=True).nan == 1


def test_every_bit_pattern_of_sixteen_bits(tmp_path):
    """All 65,536 of bfloat16 and float16: signed zeros, subnormals, infinities and every NaN."""
    patterns = torch.arange(65_536, dtype=torch.int32).to(torch.uint16)
    for dtype in (torch.bfloat16, torch.float16):
        holds(one(tmp_path, patterns.view(dtype)), patterns.view(dtype))


def test_every_bit_pattern_of_eight_bits(tmp_path):
    """All 256 of each float8."""
    patterns = torch.arange(256, dtype=torch.uint8)
    for dtype in EIGHTS:
        holds(one(tmp_path, patterns.view(dtype)), patterns.view(dtype))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_values_of_one_sign(tmp_path, dtype, sign):
    """Extremes are right where all values are positive, or all negative."""
    tensor = (sign * (torch.rand(5_000) + 0.5)).to(dtype)
    holds(one(tmp_path, tensor), tensor)


def test_a_spread_that_is_small_beside_the_mean(tmp_path):
    """No digits are lost to cancellation."""
    tensor = 1_000 + 1e-3 * torch.randn(200_000, dtype=torch.float64)
    found = one(tmp_path, tensor)
    assert found.std == pytest.approx(tensor.std(correction=0).item(), rel=1e-6)
    single = (1 + 1e-3 * torch.randn(200_000)).float()
    assert one(tmp_path, single).std == pytest.approx(single.double().std(correction=0).item(), rel=1e-5)


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e-42])
def test_squares_that_float32_does_not_hold(tmp_path, scale):
    """Huge, tiny and subnormal values have a norm and a spread."""
    tensor = torch.randn(1_000).clamp(-3, 3) * scale
    holds(one(tmp_path, tensor), tensor)


def test_constants(tmp_path):
    """One number throughout has no spread."""
    found = one(tmp_path, torch.full((1_000,), 0.1))
    assert found.constant
    assert found.std == pytest.approx(0, abs=1e-9)
    assert found.histogram is not None
    assert sum(found.histogram.counts) == 1_000
    assert not one(tmp_path, torch.tensor([0.1, float("nan")])).constant


@pytest.mark.parametrize("count", range(1, 30))
@pytest.mark.parametrize("value", [1.0, 0.1, 1e300, 3e-310])
def test_the_same_number_everywhere_has_no_spread_at_all(tmp_path, count, value):
    """However its sums are rounded."""
    found = one(tmp_path, torch.full((count,), value, dtype=torch.float64))
    assert (found.std, found.mean) == (0.0, value)


@pytest.mark.parametrize("repeats", [1, 100, 100_000])
@pytest.mark.parametrize("scale", [1e155, 5e307])
def test_a_spread_beyond_what_a_float_holds_is_infinite(tmp_path, scale, repeats):
    """It is never none, nor no number, of few values or of many."""
    found = one(tmp_path, torch.tensor([1, 2, 3], dtype=torch.float64).repeat(repeats) * scale)
    assert found.std == found.norm == math.inf
    assert found.mean == pytest.approx(2 * scale)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=200),
    st.lists(st.integers(1, 199), max_size=4),
)
def test_statistics_do_not_depend_on_the_chunks(values, cuts):
    """The same values in other pieces, counted in one after another or apart and added up."""
    tensor = torch.tensor(values, dtype=torch.float32)
    whole, parts, sums = Partial(), Partial(), Partial()
    ChunkMeasure().add(tensor.numpy(), "float32", whole)
    edges = sorted({0, len(values), *[min(cut, len(values)) for cut in cuts]})
    for start, stop in pairwise(edges):
        ChunkMeasure().add(tensor[start:stop].numpy(), "float32", parts)
        apart = Partial()
        ChunkMeasure().add(tensor[start:stop].numpy(), "float32", apart)
        sums.add(apart)
    for each in (parts, sums):
        one_way, other = summed_up(whole), summed_up(each)
        assert (one_way.count, one_way.zeros, one_way.min, one_way.max) == (
            other.count, other.zeros, other.min, other.max
        )  # fmt: skip
        assert other.norm == pytest.approx(one_way.norm, rel=1e-5)
        assert other.std == pytest.approx(one_way.std, rel=1e-4, abs=1e-5 * one_way.absmax)


def test_a_histogram_of_few_values_is_exact(tmp_path):
    """Every value is counted, between the smallest and the largest."""
    tensor = torch.linspace(-1, 1, SAMPLE)
    histogram = one(tmp_path, tensor).histogram
    assert histogram is not None
    assert not histogram.sampled
    assert (histogram.edges[0], histogram.edges[-1], len(histogram.counts)) == (-1, 1, BINS)
    assert sum(histogram.counts) == SAMPLE
    assert max(histogram.counts) - min(histogram.counts) <= 1


def test_a_histogram_of_many_values_is_sampled(tmp_path):
    """Evenly spaced values stand for all, and that is said."""
    tensor = torch.linspace(-1, 1, 10 * CHUNK + 5)
    histogram = one(tmp_path, tensor).histogram
    assert histogram is not None
    assert histogram.sampled
    assert SAMPLE // 2 <= sum(histogram.counts) <= SAMPLE
    assert max(histogram.counts) <= 1.05 * min(histogram.counts)


def test_exponents(tmp_path):
    """How many values lie in each power of two."""
    histogram = one(tmp_path, torch.tensor([0.0, 0.5, 0.75, -3.0])).histogram
    assert histogram is not None
    assert histogram.exponents == ((0, 2), (2, 1))


@pytest.mark.parametrize(
    ("tensor", "fits"),
    [
        (torch.randn(5_000), ()),
        (torch.randn(5_000).bfloat16().float() * 2.0**-20, ("bfloat16",)),
        (torch.randn(5_000).half().float(), ("float16",)),
        (torch.ones(5_000), ("bfloat16", "float16")),
        (torch.tensor([1.0, 70_000.0]), ()),
        (torch.tensor([1.0, float("inf")]), ("bfloat16", "float16")),
        (torch.tensor([1.0, float("nan")]), ()),
        (torch.randn(10).double(), ()),
        (torch.randn(10).double().float().double(), ("float32",)),
        (torch.ones(10, dtype=torch.bfloat16), ("float8_e4m3fn", "float8_e5m2")),
        (torch.tensor([0, 200]), ("int32", "int16", "uint8")),
        (torch.tensor([-1, 70_000]), ("int32",)),
        (torch.tensor([2**60]), ()),
    ],
)
def test_narrower_dtypes_that_hold_every_value(tmp_path, tensor, fits):
    """Only those that give every value back."""
    expected = one(tmp_path, tensor).fits
    if tensor.dtype is torch.float64 and not fits:
        assert "bfloat16" not in expected
    else:
        assert expected == fits


def test_one_value_in_the_last_chunk_decides(tmp_path):
    """A dtype is struck out wherever the value lies that it does not hold."""
    tensor = torch.ones(2 * CHUNK)
    tensor[-1] = 1 + 2**-20
    assert one(tmp_path, tensor).fits == ()


def test_rows_that_are_there_again(tmp_path):
    """The number of rows that repeat an earlier one; None for what has no rows, or is large."""
    tensor = torch.randn(10, 6)
    tensor[7] = tensor[2]
    tensor[8] = tensor[2]
    assert one(tmp_path, tensor).duplicated_rows == 2
    assert one(tmp_path, torch.randn(10)).duplicated_rows is None
    assert one(tmp_path, torch.zeros(1_000, 1_000)).duplicated_rows is None
    assert one(tmp_path, torch.randn(6, 10).t()).duplicated_rows is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("odd", [1.0, 0.0, -0.0, 1e-30, 1e30, float("nan"), float("inf")])
def test_several_chunks_at_once_come_to_what_each_alone_does(dtype, odd):
    """To the last bit, with a chunk among them that is like no other, and a last one that is shorter."""
    tensor = (torch.randn(3 * 4096 + 700, generator=torch.Generator().manual_seed(2)) + 1) * 0.02
    tensor[5000], tensor[4096:4100] = odd, -0.0
    tensor[8192:12288] = odd
    tensor = tensor.to(getattr(torch, dtype))
    held = tensor.numpy() if dtype == "float32" else tensor.view(torch.uint16).numpy()
    together, apart = Partial(), Partial()
    ChunkMeasure().add_all(held, dtype, 4096, together)
    for at in range(0, held.size, 4096):
        ChunkMeasure().add(held[at : at + 4096], dtype, apart)
    assert together == apart
