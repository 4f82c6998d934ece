"""dtypes: what is known of each one is what torch and safetensors say."""

from __future__ import annotations

import itertools

import pytest
import torch

from ckptdoctor.checkpoint.dtypes import BY_NAME, BY_STORAGE_CLASS, cast_loses_values

SMALL = {"bool": [False, True], "int8": range(-128, 128), "uint8": range(256), "int16": range(-(2**15), 2**15)}
FLOATS = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
]
INTEGERS = ["uint8", "int8", "int16", "int32", "int64", "bool"]


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def _samples(name: str) -> torch.Tensor:
    """Every value of a dtype of at most 16 bits; telling values of the wider ones. NaN is left out."""
    dtype = _dtype(name)
    if name in SMALL:
        return torch.tensor(list(SMALL[name])).to(dtype)
    if dtype.itemsize <= 2 and dtype.is_floating_point:
        bits = torch.arange(2 ** (8 * dtype.itemsize), dtype=torch.int32)
        raw = bits.to(torch.uint8 if dtype.itemsize == 1 else torch.uint16).view(dtype)
        return raw[~raw.to(torch.float32).isnan()]
    if dtype.is_floating_point:
        ends = torch.finfo(dtype)
        values = [0.1, 1 / 3, ends.max, ends.min, ends.tiny, ends.smallest_normal / 2, 1.0 + ends.eps]
        return torch.tensor(values, dtype=torch.float64).to(dtype)
    ends = torch.iinfo(dtype)
    return torch.tensor([ends.min, ends.max, ends.max - 1, 2**24 + 1, -1], dtype=dtype)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(FLOATS + INTEGERS, repeat=2)))
def test_a_cast_loses_values_where_torch_does(source: str, target: str) -> None:
    """Whether a cast changes some value is known without the values."""
    before = _samples(source)
    there = before.to(_dtype(target))
    changed = _values(there) != _values(before)
    if before.dtype.is_floating_point and not there.dtype.is_floating_point:
        changed = True  # 0.5 is among the values, if not among the samples
    assert cast_loses_values(BY_NAME[source], BY_NAME[target]) is changed


def _values(tensor: torch.Tensor) -> list[object]:
    """The values as Python numbers, which compare exactly, integers with floats too."""
    return (tensor.to(torch.float64) if tensor.is_floating_point() else tensor).tolist()


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_widths_are_those_of_torch(name: str) -> None:
    """Bits of an element are what torch stores, for every dtype that it has."""
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"this torch has no {name}")
    known = BY_NAME[name]
    assert (known.bits + 7) // 8 == dtype.itemsize
    assert (known.kind == "float") == dtype.is_floating_point
    assert (known.kind == "complex") == dtype.is_complex


def test_every_dtype_of_torch_is_known() -> None:
    """No dtype that torch can save is missing."""
    every = {str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)}
    assert every <= set(BY_NAME)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # the names are what matters here
@pytest.mark.parametrize("name", sorted(BY_STORAGE_CLASS))
def test_storage_classes_are_those_of_torch(name: str) -> None:
    """The typed storage class that names a dtype in a pickle is torch's own."""
    assert str(getattr(torch, name).dtype) == f"torch.{BY_STORAGE_CLASS[name].name}"
