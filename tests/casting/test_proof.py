"""The proof of a cast finds every number that is another one than the nearest."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.casting.cast import cast
from ckptdoctor.casting.proof import is_cast
from tests.casting.test_cast import FLOAT8, TARGETS, data_of

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
