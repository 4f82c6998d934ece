"""Whether two contents are the same to the last bit: keys and their order, types, shapes, strides and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def assert_same(ours: Any, theirs: Any, where: str = "", *, strides: bool = True) -> None:
    """Fails with the place of the first difference. Arrays are tensors to us."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, torch.Tensor), f"{where}: {ours!r}"
        _assert_tensor(ours.detach(), theirs.detach(), where, strides)
    elif isinstance(theirs, np.ndarray):
        assert isinstance(ours, torch.Tensor), f"{where}: {ours!r}"
        _assert_tensor(ours, torch.from_numpy(theirs), where, strides)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for key, value in theirs.items():
            assert_same(ours[key], value, f"{where}/{key}", strides=strides)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), where
        for index, value in enumerate(theirs):
            assert_same(ours[index], value, f"{where}/{index}", strides=strides)
    else:
        assert (type(ours), ours) == (type(theirs), theirs), where


def _assert_tensor(ours: torch.Tensor, theirs: torch.Tensor, where: str, strides: bool) -> None:
    looks = [(each.dtype, each.shape, each.layout, each.is_quantized) for each in (ours, theirs)]
    assert looks[0] == looks[1], where
    if theirs.layout is not torch.strided:
        ours, theirs = ours.to_dense(), theirs.to_dense()
    if theirs.is_quantized:
        assert torch.equal(ours.int_repr(), theirs.int_repr()), where
        ours, theirs = ours.dequantize(), theirs.dequantize()
    if strides:
        assert ours.stride() == theirs.stride(), where
    assert bits(ours) == bits(theirs), where


def bits(tensor: torch.Tensor) -> bytes:
    """The values as bytes."""
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def tensors_of(contents: Any, path: tuple[str, ...] = ()) -> dict[str, torch.Tensor]:
    """Every tensor by its whole path, as ``ckptdoctor convert --flatten`` calls them."""
    if isinstance(contents, torch.Tensor):
        return {"/".join(path): contents.detach()}
    below = contents.items() if isinstance(contents, dict) else enumerate(contents)
    found: dict[str, torch.Tensor] = {}
    if isinstance(contents, (dict, list, tuple)):
        for key, value in below:
            if isinstance(value, (torch.Tensor, dict, list, tuple)):
                found.update(tensors_of(value, (*path, str(key))))
    return found
