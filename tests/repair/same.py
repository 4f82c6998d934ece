"""Whether two loaded checkpoints are the same: values bit for bit, dtypes, strides, ties, classes and attributes."""

from __future__ import annotations

import torch


def assert_same(one: object, other: object) -> None:
    """Raises AssertionError, with the place, at the first difference."""
    _same(one, other, "(root)", {}, set())


def _same(one: object, other: object, place: str, ties: dict[int, int], seen: set[tuple[int, int]]) -> None:
    assert type(one) is type(other), f"{place}: {type(one)} and {type(other)}"
    if isinstance(one, torch.Tensor):
        _same_tensor(one, other, place, ties)
    elif (id(one), id(other)) in seen:
        return
    elif isinstance(one, dict):
        seen.add((id(one), id(other)))
        assert list(one) == list(other), f"{place}: {list(one)[:5]} and {list(other)[:5]}"
        for key in one:
            _same(one[key], other[key], f"{place}/{key}", ties, seen)
        if getattr(one, "__dict__", None):
            _same(vars(one), vars(other), f"{place}.", ties, seen)
    elif isinstance(one, (list, tuple)):
        seen.add((id(one), id(other)))
        assert len(one) == len(other), place
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            _same(a, b, f"{place}/{index}", ties, seen)
    elif hasattr(one, "__dict__") and not isinstance(one, type) and not callable(one):
        seen.add((id(one), id(other)))
        _same(vars(one), vars(other), f"{place}.", ties, seen)
    else:
        assert repr(one) == repr(other), f"{place}: {one!r} and {other!r}"


def _same_tensor(one: torch.Tensor, other: torch.Tensor, place: str, ties: dict[int, int]) -> None:
    for name in ("dtype", "shape", "layout", "requires_grad", "device"):
        assert getattr(one, name) == getattr(other, name), f"{place}: {name}"
    if one.layout is not torch.strided or one.is_meta or one.is_quantized:
        if not one.is_meta:
            assert repr(one) == repr(other), place
        return
    assert one.stride() == other.stride(), f"{place}: strides"
    assert one.storage_offset() == other.storage_offset(), f"{place}: offset"
    assert bytes(one.untyped_storage()) == bytes(other.untyped_storage()), f"{place}: values"
    mine, its = one.untyped_storage().data_ptr(), other.untyped_storage().data_ptr()
    assert mine == 0 or ties.setdefault(mine, its) == its, f"{place}: ties"
