"""What dtypes are called."""

from __future__ import annotations

import pytest

from ckptdoctor.edits.casts import named


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("bf16", "bfloat16"),
        ("half", "float16"),
        ("torch.float32", "float32"),
        ("FP64", "float64"),
        ("int8", None),
        ("", None),
    ],
)
def test_names(text, dtype):
    """torch's names, and what people call them."""
    assert named(text) == dtype
