"""What rules say of dtypes after reading every value."""

from __future__ import annotations

import torch

from ckptdoctor.edits import Cast, Safety
from tests.rules.values.test_values import findings


def test_values_that_float16_makes_infinite(tmp_path):
    """torch says nothing when it casts them; the finding says which."""
    state = {"bn.weight": torch.ones(4), "bn.running_var": torch.full((4,), 1e6)}
    assert torch.isinf(state["bn.running_var"].half()).all()
    (finding,) = findings(tmp_path, state, "T552")
    assert finding.message == (
        "1 tensor holds values that float16 makes infinite; the largest is 1,000,000 in bn.running_var"
    )


def test_float16_itself_is_no_risk(tmp_path):
    """It holds what it holds."""
    assert findings(tmp_path, {"a.weight": torch.full((4, 4), 65_504.0).half()}, "T552") == []


def test_float32_that_was_bfloat16(tmp_path):
    """Every tensor comes back the same: half of the bytes say nothing."""
    state = {"a.weight": torch.randn(100, 50).bfloat16().float() * 2.0**-20, "a.bias": torch.zeros(100)}
    (finding,) = findings(tmp_path, state, "T554")
    assert finding.message == "both float32 tensors hold only values that bfloat16 holds exactly"
    assert "10,200 bytes" in finding.cause
    assert finding.fix is not None
    assert finding.fix.safety is Safety.SAFE
    assert finding.fix.edits == (Cast((("a.weight",), ("a.bias",)), "bfloat16", exact=True),)


def test_float64_that_was_float32(tmp_path):
    """The narrowest that holds all is named."""
    exact = torch.randn(100, 50, dtype=torch.float64)
    assert findings(tmp_path, {"a.weight": exact}, "T554") == []
    (finding,) = findings(tmp_path, {"a.weight": torch.randn(100, 50).float().double()}, "T554")
    assert "float32 holds exactly" in finding.message


def test_one_tensor_that_needs_its_dtype_is_enough(tmp_path):
    """A file with values that need float32 wastes nothing that can be told in one sentence."""
    state = {"a.weight": torch.randn(100, 50).bfloat16().float(), "b.weight": torch.randn(100, 50)}
    assert findings(tmp_path, state, "T554") == []
