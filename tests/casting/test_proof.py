"""The proof of a cast finds every number that is another one than the nearest."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.casting.cast import cast
from ckptdoctor.casting.proof import is_cast
from tests.casting.test_cast import EVERY, FLOAT8, TARGETS, data_of

PAIRS = [(source, target) for source in TARGETS for target in TARGETS if source != target]
VALUES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    3.14159,
    65504.0,
    65519.0,
    65520.0,
    1e5,
    1e-8,
    6e-8,
    1e30,
    float("inf"),
    float("nan"),
]


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("value", VALUES)
def test_another_number_is_found(source, target, value):
    """Each bit of the result that is flipped, but for those of the payload of a NaN."""
    data = data_of(torch.tensor([value], dtype=getattr(torch, source)))
    made = cast(data, source, target)
    assert is_cast(data, made, source, target)
    for bit in range(len(made) * 8):
        whole = int.from_bytes(made, "little") ^ 1 << bit
        other = whole.to_bytes(len(made), "little")
        same = is_cast(data, other, source, target)
        found = torch.frombuffer(bytearray(other), dtype=getattr(torch, target))
        assert same == bool(found.isnan().item() and value != value and bit < len(made) * 8 - 1)


@pytest.mark.parametrize(
    ("source", "target"),
    [*PAIRS, *[(source, target) for source in FLOAT8 for target in ("float32", "bfloat16", "float16")]],
)
def test_one_among_many_is_found(source, target):
    """The fast way, on plain numbers of either sign: each bit of one of them that is flipped."""
    numbers = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    data = data_of(numbers.to(getattr(torch, source)))
    made = cast(data, source, target)
    assert is_cast(data, made, source, target)
    width = len(made) // 1000
    assert not is_cast(data, made[:-width], source, target)
    for number in (3, 500):
        for bit in range(8 * width):
            other = bytearray(made)
            other[number * width + bit // 8] ^= 1 << bit % 8
            assert not is_cast(data, bytes(other), source, target)


def near_ties(dtype: str) -> torch.Tensor:
    """Numbers half way between two of ``dtype``, those next to them, some that are too large, and both signs of all."""
    sizes = torch.arange(128, dtype=torch.int32).to(torch.uint8).view(getattr(torch, dtype)).float()
    sizes = sizes[sizes.isfinite()].sort().values
    between, largest = (sizes[1:] + sizes[:-1]) / 2, sizes[-1]
    beyond = largest * torch.tensor([1.01, 1.03, 1.04, 1.07, 1.13, 1.26, 3.0, 1e30])
    above, below = (torch.nextafter(between, torch.tensor(each)) for each in (float("inf"), 0.0))
    found = torch.cat([torch.zeros(1), between, above, below, beyond, torch.tensor([float("inf")])])
    return torch.cat([found, -found])


def cast_by_torch(numbers: torch.Tensor, target: str) -> bytes:
    """Where there is no infinity, the largest number for what is too large: torch made NaN of it once."""
    if target == "float8_e4m3fn":
        limit = torch.tensor(torch.finfo(torch.float8_e4m3fn).max, dtype=numbers.dtype)
        numbers = torch.where(numbers.abs() > limit, limit.copysign(numbers), numbers)
    return data_of(numbers.to(getattr(torch, target)))


@pytest.mark.parametrize("target", FLOAT8)
@pytest.mark.parametrize("source", ["bfloat16", "float16", "float32"])
def test_what_torch_makes_of_numbers_in_8_bits_is_right(source, target):
    """Of all numbers of 16 bits, and of those of 32 at and near every place where the nearest one becomes another."""
    numbers = near_ties(target) if source == "float32" else EVERY.view(getattr(torch, source))
    assert is_cast(data_of(numbers), cast_by_torch(numbers, target), source, target)


@pytest.mark.parametrize("target", FLOAT8)
def test_any_other_number_of_8_bits_is_wrong(target):
    """Each that is next to the right one or differs from it in one bit, up to numbers that are too large."""
    numbers = near_ties(target)[::3]
    for number, right in zip(numbers, cast_by_torch(numbers, target), strict=True):
        data = data_of(number.reshape(1))
        for other in {right, max(right - 1, 0), min(right + 1, 255), *[right ^ 1 << bit for bit in range(8)]}:
            assert is_cast(data, bytes([other]), "float32", target) == (other == right), (number, other)
