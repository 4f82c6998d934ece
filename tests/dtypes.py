"""Dtypes that not every torch has which is supported: float8_e8m0fnu came with 2.7, float4_e2m1fn_x2 with 2.8."""

from __future__ import annotations

import pytest
import torch


def known(*names: str) -> list[torch.dtype]:
    """Those of these names that this torch has."""
    return [getattr(torch, name) for name in names if hasattr(torch, name)]


def needs_dtype(name: str) -> pytest.MarkDecorator:
    """For a test that makes tensors of this dtype."""
    return pytest.mark.skipif(not hasattr(torch, name), reason=f"this torch has no {name}")
