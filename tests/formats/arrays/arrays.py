"""Arrays of every kind that NumPy users save."""

from __future__ import annotations

from typing import Any

import numpy as np


def plain() -> dict[str, Any]:
    """Arrays that torch has types for."""
    generator = np.random.default_rng(0)
    shared = generator.random((4, 4))
    return {
        "float32": generator.random((3, 4)).astype("f4"),
        "fortran": np.asfortranarray(generator.random((30, 40))),
        "int64": np.arange(5),
        "uint16": np.arange(7, dtype="u2"),
        "bool": np.array([True, False]),
        "complex": np.array([1 + 2j, 3]),
        "empty": np.zeros((0, 3), dtype="f4"),
        "scalar array": np.array(2.5),
        "half": generator.random(70_000).astype("f2"),
        "one": shared,
        "the same": shared,
    }


def odd() -> dict[str, Any]:
    """Arrays that torch has no types for, beside one that it has."""
    return {
        "objects": np.array([{"a": 1}, None], dtype=object),
        "structure": np.zeros(3, dtype=[("shape", "f4"), ("y", "i4")]),
        "text": np.array(["abc", "d"]),
        "dates": np.array(["2020-01-01"], dtype="M8[D]"),
        "weights": np.ones((2, 3), dtype="f4"),
    }
