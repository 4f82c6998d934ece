"""Compares what ckptdoctor loads with what the producer's own loader gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    """The same tree, with arrays as tensors of the same type, shape, strides and values; other objects are left out."""
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for key, value in theirs.items():
            assert_same(ours[key], value, f"{where}/{key}")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), where
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(one, other, f"{where}/{index}")
    elif isinstance(theirs, np.ndarray):
        _assert_array(ours, theirs, where)
    elif isinstance(theirs, torch.Tensor):
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride()), where
        assert torch.equal(ours.double(), theirs.double()) if theirs.is_floating_point() else torch.equal(ours, theirs)
    elif not isinstance(theirs, np.generic):
        assert ours == theirs, where


def _assert_array(ours: Any, theirs: np.ndarray, where: str) -> None:
    if theirs.dtype.kind in "OVSU" or type(theirs) is not np.ndarray:
        assert not isinstance(ours, torch.Tensor), where
        return
    made = ours.numpy()
    assert (made.dtype, made.shape) == (theirs.dtype.newbyteorder("="), theirs.shape), where
    assert np.array_equal(made, theirs), where
    assert made.strides == theirs.strides or theirs.size < 2, where
