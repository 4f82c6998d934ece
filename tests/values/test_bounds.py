"""The bounds that ``TensorValues`` states, held for every dtype against float64 on values that nobody chose."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.values import chunks as compared
from ckptdoctor.values.chunks import ChunkMeasure
from ckptdoctor.values.flat_chunks import CHUNK
from ckptdoctor.values.partial import Partial
from ckptdoctor.values.statistics import TensorValues
from ckptdoctor.values.summing_up import summed_up
from tests.values.test_statistics import EIGHTS, FLOATS, INTEGERS

WIDE = [torch.float64, torch.int64, torch.int32, torch.uint64, torch.uint32]
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def name(tensor: torch.Tensor) -> str:
    """Of its dtype."""
    return str(tensor.dtype).removeprefix("torch.")


def held(tensor: torch.Tensor) -> np.ndarray:
    """The same numbers as arrays hold them."""
    if name(tensor) in ("float32", "float64") or (not tensor.dtype.is_floating_point and tensor.dtype != torch.bool):
        return tensor.numpy()
    return tensor.view({1: torch.uint8, 2: torch.uint16}[tensor.element_size()]).numpy()


def measured(tensor: torch.Tensor) -> TensorValues:
    """The statistics of a tensor that is in memory already."""
    partial, measure = Partial(), ChunkMeasure()
    for chunk in tensor.split(CHUNK):
        measure.add(held(chunk), name(tensor), partial)
    return summed_up(partial)


def scanned_alike(tensor: torch.Tensor, found: TensorValues) -> None:
    """What is worked out for rules is what is worked out for people, as far as it goes."""
    partial, measure = Partial(), ChunkMeasure()
    for chunk in tensor.split(CHUNK):
        measure.scan(held(chunk), name(tensor), partial)
    scanned = summed_up(partial, sums=False)
    assert scanned.zeros == (found.zeros if found.zeros == found.count else 0)
    for what in ("count", "nan", "positive_inf", "negative_inf", "finite", "min", "max", "absmax", "constant"):
        assert getattr(scanned, what) == getattr(found, what), what
    assert [*map(math.isnan, (scanned.mean, scanned.std, scanned.norm))] == [found.finite > 0] * 3


def within(tensor: torch.Tensor) -> None:
    """The bounds hold."""
    eight = tensor.dtype in EIGHTS
    exact = (tensor.float() if eight else tensor).double().numpy()
    found = measured(tensor)
    scanned_alike(tensor, found)
    finite = exact[np.isfinite(exact)]
    assert (found.count, found.nan) == (exact.size, int(np.isnan(exact).sum()))
    assert (found.positive_inf, found.negative_inf) == (int((exact == np.inf).sum()), int((exact == -np.inf).sum()))
    assert found.zeros == int((finite == 0).sum())
    if not finite.size:
        assert (found.min, found.max, found.mean, found.std, found.norm) == (0, 0, 0, 0, 0)
        return
    assert (found.min, found.max, found.absmax) == (finite.min(), finite.max(), np.abs(finite).max())
    root = math.sqrt(float((finite**2).mean()))
    sharp = eight or tensor.dtype in WIDE
    assert abs(found.mean - finite.mean()) <= (1e-12 if sharp else 2e-6) * root
    assert found.norm == pytest.approx(np.linalg.norm(finite), rel=1e-9 if sharp else 1e-4)
    assert found.std == pytest.approx(finite.std(), rel=1e-9 if sharp else 1e-4, abs=1e-9 * root)


@pytest.mark.parametrize("dtype", [*FLOATS, *EIGHTS, *INTEGERS], ids=str)
def test_every_dtype(dtype):
    """Tensors of all lengths, with numbers of every size, sign and spread, and with what is not finite."""

    @settings(deadline=None, max_examples=25)
    @given(
        st.integers(0, 2**31),
        st.sampled_from([1, 33, 1_000, 8_192, 9_999, 20_480, 40_001]),
        st.sampled_from([1e-30, 1e-8, 0.02, 1.0, 300.0, 1e6, 1e12]),
        st.sampled_from([0.0, 1.0, 30.0, -30.0]),
        st.sampled_from([0.0, 0.0, 0.3, 1.0]),
        st.booleans(),
    )
    def holds(seed, count, scale, middle, zeros, sick):
        source = torch.Generator().manual_seed(seed)
        tensor = (torch.randn(count, generator=source, dtype=torch.float64) + middle) * scale
        tensor[torch.rand(count, generator=source) < zeros] = 0
        if dtype.is_floating_point:
            tensor = tensor.clamp(-3e38, 3e38) if dtype.itemsize < 8 else tensor
            tensor = tensor.float().to(dtype) if dtype.itemsize == 1 else tensor.to(dtype)
            if sick and dtype not in EIGHTS:
                tensor[:: max(1, count // 7)] = torch.tensor([float("nan"), float("inf"), -float("inf")])[seed % 3]
        elif dtype is torch.bool:
            tensor = tensor > 0
        else:
            low, high = max(torch.iinfo(dtype).min, -(2**53)), min(torch.iinfo(dtype).max, 2**53)
            tensor = tensor.clamp(low, high).to(dtype)
        within(tensor)

    holds()


@pytest.mark.parametrize("dtype", [*FLOATS, *EIGHTS], ids=str)
def test_every_pattern_of_bits(dtype):
    """Random bits are every number that a dtype has, signed zeros, subnormals and all NaNs among them."""

    @settings(deadline=None, max_examples=20)
    @given(st.integers(0, 2**31), st.sampled_from([2, 40, 300, 8_192, 12_000]), st.integers(0, 2**64 - 1))
    def holds(seed, count, kept):
        bits = torch.randint(0, 256, (count * dtype.itemsize,), generator=torch.Generator().manual_seed(seed))
        whole = bits.to(torch.uint8).view(BITS[dtype.itemsize])
        tensor = (whole & (kept >> (64 - 8 * dtype.itemsize) if dtype.itemsize == 1 else -1)).view(dtype)
        if dtype is torch.float64:
            tensor = tensor.clamp(-1e150, 1e150)
        found = measured(tensor)
        exact = (tensor.float() if dtype.itemsize == 1 else tensor).double().numpy()
        finite = exact[np.isfinite(exact)]
        assert (found.nan, found.infinite) == (int(np.isnan(exact).sum()), int(np.isinf(exact).sum()))
        assert found.zeros == int((finite == 0).sum())
        if finite.size:
            assert (found.min, found.max) == (finite.min(), finite.max())
            assert found.norm == pytest.approx(np.linalg.norm(finite), rel=1e-4)
        scanned_alike(tensor, found)

    holds()


@pytest.mark.parametrize("middle", [0.0, 5.0, -5.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_zeros_of_both_signs_among_many(dtype, middle):
    """They are counted, and the bounds hold."""
    tensor = (torch.randn(100_003) + middle).to(dtype)
    tensor[::9] = 0.0
    tensor[4::9] = -0.0
    within(tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@given(st.sets(st.integers(0, 40_000), max_size=4), st.sets(st.integers(0, 40_000), max_size=4))
@settings(deadline=None, max_examples=25)
def test_a_few_zeros_are_found_wherever_they_are(dtype, places, negative):
    """Of either sign, in the middle and at both ends."""
    tensor = torch.linspace(-1, 1, 40_000, dtype=torch.float64).repeat(2)[20_000:60_001].to(dtype)
    tensor[sorted(places)] = 0.0
    tensor[sorted(negative)] = -0.0
    assert measured(tensor).zeros == len(places | negative)


@given(st.lists(st.integers(-(10**4), 10**4), min_size=1, max_size=50))
@settings(deadline=None)
def test_squares_are_added_up_within_their_bound(values):
    """Whatever is next to what: each is within 1,024 roundings of float32."""
    many = np.resize(np.array(values, np.float32) ** 3, 5_000)
    exact = float((many.astype(np.float64) ** 2).sum())
    assert compared.sum_of_squares(many) == pytest.approx(exact, rel=6.2e-5, abs=1e-40)


@given(
    st.lists(st.integers(-(10**4), 10**4), min_size=1, max_size=50), st.integers(33, 5_000) | st.integers(8_192, 40_000)
)
@settings(deadline=None)
def test_sums_are_within_their_bound(values, count):
    """Whatever is next to what: each value goes through 31 roundings of float32 at most."""
    many = np.resize(np.array(values, np.float32) ** 3, count)
    exact = many.astype(np.float64)
    assert compared.sum_of(many) == pytest.approx(float(exact.sum()), rel=0, abs=1.86e-6 * float(np.abs(exact).sum()))


@pytest.mark.parametrize("value", [0.1, 1.0, 7.0, 1e-3, 3e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_sums_of_constants_do_not_drift(dtype, value):
    """What is rounded the same way at every step adds up."""
    tensor = torch.full((CHUNK + 5_000,), value).to(dtype)
    found = measured(tensor)
    exact = tensor[0].double().item()
    assert found.mean == pytest.approx(exact, rel=2e-6)
    assert found.norm == pytest.approx(exact * math.sqrt(tensor.numel()), rel=1e-4)
    assert found.std <= 1e-5 * exact


@pytest.mark.parametrize("values", [[1e200, -1e200, 3.0], [1.7e308] * 50, [1.7e308, -1.7e308], [1e-200] * 40])
def test_squares_that_no_float_holds(values):
    """Norm and std become infinite, as those of NumPy do, and nothing becomes NaN."""
    found = measured(torch.tensor(values, dtype=torch.float64))
    assert (found.min, found.max) == (min(values), max(values))
    assert found.mean == pytest.approx(sum(each / len(values) for each in values), rel=1e-9)
    assert not math.isnan(found.std) and not math.isnan(found.norm)
