"""NumPy's values as they are pickled, told without NumPy: held against NumPy itself."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ckptdoctor import formats
from ckptdoctor.facts.numpy_values import NotPlainError, held_values
from ckptdoctor.facts.plain_data import as_plain

_KINDS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
_DTYPES = st.sampled_from([np.dtype(order + kind) for kind in _KINDS for order in "<>"])
_TEXTS = st.sampled_from([np.dtype(kind) for kind in ("<U3", ">U2", "S4")])
_TIMES = st.sampled_from([np.dtype(f"{order}M8[{unit}]") for unit in "YMWDhms" for order in "<>"])


def node_of(folder: Path, value: object, protocol: int) -> object:
    buffer = io.BytesIO()
    torch.save({"x": value}, buffer, pickle_protocol=protocol)
    (folder / "a.pt").write_bytes(buffer.getvalue())
    return dict(formats.open_checkpoint(folder / "a.pt").tree.entries)["x"]


@given(_DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0))), st.data())
@settings(max_examples=60, deadline=None)
def test_an_array_is_held_as_numpy_has_it(tmp_path_factory, array, data):
    """Elements, shape and strides are those of the array that torch makes of it, in either order of bytes."""
    array = np.asfortranarray(array) if data.draw(st.booleans()) else array
    node = node_of(tmp_path_factory.mktemp("a"), array, data.draw(st.sampled_from([2, 4, 5])))
    held = held_values(node)
    native = array.astype(array.dtype.newbyteorder("="))
    wanted = torch.from_numpy(native)
    assert held is not None
    assert (f"torch.{held.dtype.name}", held.shape) == (str(wanted.dtype), tuple(wanted.shape))
    order = "F" if held.stride != tuple(wanted.contiguous().stride()) and native.size else "C"
    assert np.frombuffer(held.values, native.dtype).tobytes() == native.tobytes(order)


@given((_TEXTS | _DTYPES).flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0))), st.data())
@settings(max_examples=60, deadline=None)
def test_a_list_is_what_numpy_lists(tmp_path_factory, array, data):
    """Plain lists are ``tolist()``."""
    array = np.asfortranarray(array) if data.draw(st.booleans()) else array
    node = node_of(tmp_path_factory.mktemp("a"), array, data.draw(st.sampled_from([2, 5])))
    assert repr(as_plain(node, loosely=True)) == repr(array.tolist())


@given(_TIMES, st.lists(st.integers(-600, 90_000), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_a_time_is_its_iso_text(tmp_path_factory, dtype, counts):
    """As NumPy writes it, as exact as its unit; and NaT."""
    array = np.array(counts, "i8").view("<M8[D]").astype("<M8[D]").astype(dtype)
    node = node_of(tmp_path_factory.mktemp("a"), array, 2)
    assert as_plain(node, loosely=True) == [str(np.datetime_as_string(each)) for each in array]


@pytest.mark.parametrize("unit", ["ms", "us", "ns", "ps", "fs", "as", "25s", "7D"])
def test_a_fraction_of_a_second_is_kept(tmp_path, unit):
    """Before 1970, too, and where a unit counts several."""
    array = np.array([-1, 0, 1, 123_456, "NaT"], f"M8[{unit}]")
    assert as_plain(node_of(tmp_path, array, 2), loosely=True) == [str(np.datetime_as_string(each)) for each in array]


def test_records_and_objects_are_plain(tmp_path):
    """A record is a dict of its fields; an array of objects is what these are."""
    records = np.array([(1, 2.5, b"ab"), (3, 4.5, b"c")], [("n", ">i4"), ("x", "f8"), ("s", "S2")])
    assert as_plain(node_of(tmp_path, records, 2), loosely=True) == [
        {"n": 1, "x": 2.5, "s": b"ab"},
        {"n": 3, "x": 4.5, "s": b"c"},
    ]
    objects = np.array([[None, 1], ["x", np.float64(2)]], dtype=object)
    assert as_plain(node_of(tmp_path, objects, 2), loosely=True) == [[None, 1], ["x", 2.0]]


@pytest.mark.parametrize(
    "value",
    [
        np.array([1], "m8[s]"),
        np.array([1], "i8").view("M8"),
        np.array([-800_000], "M8[D]"),
        np.longdouble(1) / 3,
        np.array([1j], np.clongdouble),
        np.zeros((0, 3), "U2"),
        np.zeros(2, "V3"),
        np.zeros(2, [("a", "i4", (2,))]),
        np.ma.array([1, 2], mask=[True, False]),
        np.random.default_rng(0),
    ],
    ids=["duration", "no unit", "before year 1", "float128", "complex256", "shape", "void", "fields", "masked", "rng"],
)
def test_what_would_lose_something_is_refused(tmp_path, value):
    """No unit, no fraction and no shape is dropped."""
    with pytest.raises(NotPlainError):
        as_plain(node_of(tmp_path, value, 2), loosely=True)


def test_a_generator_gets_back_its_state(tmp_path):
    """``random.Random`` and ``RandomState`` become what they take back, and they go on with the same numbers."""
    import random

    python, numpy = random.Random(3), np.random.RandomState(5)
    python.gauss(0, 1), numpy.normal()
    state = as_plain(node_of(tmp_path, python, 2), loosely=True)
    fresh = random.Random()
    fresh.setstate(state)
    assert [fresh.gauss(0, 1) for _ in range(3)] == [python.gauss(0, 1) for _ in range(3)]
    made = np.random.RandomState()
    made.set_state(as_plain(node_of(tmp_path, numpy, 2), loosely=True))
    assert [made.normal() for _ in range(3)] == [numpy.normal() for _ in range(3)]
