"""Tensors with the same bytes are found without measuring anything."""

from __future__ import annotations

import torch
from safetensors.torch import save_file

from ckptdoctor import formats
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.values.diff_bytes import same_bytes


def compared(one, other):
    with formats.opened(one) as (a, first), formats.opened(other) as (b, second):
        mine, its = formats.read(a, first), formats.read(b, second)
        theirs = {tensor.key: tensor for tensor in its.tensors}
        pairs = [(tensor, theirs[tensor.key]) for tensor in mine.tensors]
        return dict(
            zip([tensor.key for tensor, _ in pairs], same_bytes(pairs, (mine, a), (its, b), Work()), strict=True)
        )


def test_bytes_shapes_and_dtypes_count(tmp_path):
    """-0.0 is not 0.0, the order of elements does not matter for what they are, and NaN is itself."""
    weights = {
        "same": torch.rand(3, 4),
        "turned": torch.rand(4, 3).t(),
        "zero": torch.zeros(2),
        "wide": torch.ones(2),
        "flat": torch.ones(2, 2),
        "nan": torch.full((2,), torch.nan),
    }
    others = {**weights, "zero": -weights["zero"], "wide": torch.ones(2).double(), "flat": torch.ones(4)}
    torch.save(weights, tmp_path / "a.pt")
    save_file({key: tensor.contiguous() for key, tensor in others.items()}, tmp_path / "b.safetensors")
    told = compared(tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert told == {"same": True, "turned": True, "zero": False, "wide": False, "flat": False, "nan": True}


def test_one_bit_at_the_end_of_a_large_tensor_counts(tmp_path):
    """Every block is compared."""
    large = torch.zeros(1_000_000)
    torch.save({"w": large}, tmp_path / "a.pt")
    large[-1] = 1e-45
    torch.save({"w": large}, tmp_path / "b.pt")
    assert compared(tmp_path / "a.pt", tmp_path / "b.pt") == {"w": False}
