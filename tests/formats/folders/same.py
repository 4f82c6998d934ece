"""Whether two nested contents are the same: containers, keys in their order, plain values, and tensors bit for bit."""

from __future__ import annotations

import torch


def assert_same(one: object, other: object, where: str = "") -> None:
    """Raises AssertionError with the place where they differ."""
    if isinstance(other, dict):
        assert isinstance(one, dict) and list(one) == list(other), where
        for key in other:
            assert_same(one[key], other[key], f"{where}/{key}")
    elif isinstance(other, (list, tuple)):
        assert type(one) is type(other) and len(one) == len(other), where
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same(left, right, f"{where}/{index}")
    elif isinstance(other, torch.Tensor):
        assert isinstance(one, torch.Tensor), where
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        assert raw(one) == raw(other), where
    else:
        assert one == other and type(one) is type(other), where


def raw(tensor: torch.Tensor) -> bytes:
    """The elements in C order, as bytes."""
    flat = tensor.detach().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
