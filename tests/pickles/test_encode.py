"""Decoding and encoding give back the same bytes, whatever was pickled and by whom."""

from __future__ import annotations

import io
import math
import pickle
import pickletools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.errors import UnprovenError
from ckptdoctor.pickles import decode
from ckptdoctor.pickles.encode import encode, prove
from tests.pickles.payloads import OBJECTS, TORCH, saved
from tests.pickles.reading import value_of

PICKLERS = {"C": pickle.Pickler, "Python": pickle._Pickler}


def dumps(value, protocol, pickler=pickle.Pickler):
    file = io.BytesIO()
    pickler(file, protocol).dump(value)
    return file.getvalue()


def assert_same(data):
    pickled = decode(data)
    prove(data, pickled)
    assert (pickled.start, pickled.end) == (0, len(data))
    return pickled


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", TORCH)
def test_what_torch_saves_is_written_again_byte_for_byte(name, protocol):
    """Every kind of torch payload survives under every protocol that torch.save takes."""
    assert_same(saved(TORCH[name], protocol))


@pytest.mark.parametrize("pickler", PICKLERS)
@pytest.mark.parametrize("name", OBJECTS)
def test_objects_are_written_again_byte_for_byte(name, pickler):
    """Objects, cycles and frames of both of CPython's picklers survive under every protocol."""
    for protocol in range(6):
        if protocol < 2 and name in ("slots", "keyword arguments"):
            continue  # these protocols cannot pickle it
        assert_same(dumps(OBJECTS[name], protocol, PICKLERS[pickler]))


@pytest.mark.parametrize("protocol", range(6))
def test_optimized_pickles_are_written_again_byte_for_byte(protocol):
    """A stream from which pickletools.optimize took the unused PUTs has gaps in its memo, which are kept."""
    assert_same(pickletools.optimize(dumps(list(OBJECTS.values())[2:], max(protocol, 2))))
    assert_same(pickletools.optimize(dumps(["a", ("b", "a"), {"c": "b"}], protocol)))


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.sampled_from(["shared", "cpu"]),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.sets(st.integers())
        | st.frozensets(st.text())
    ),
    max_leaves=30,
)


def same(one, other):
    """Equality in which NaN equals itself and types count."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    return one == other


@settings(deadline=None, max_examples=150)
@given(PLAIN, st.integers(0, 5), st.sampled_from(sorted(PICKLERS)))
def test_any_plain_value_survives(value, protocol, pickler):
    """Any nested plain value is decoded to itself and written again byte for byte."""
    data = dumps(value, protocol, PICKLERS[pickler])
    pickled = assert_same(data)
    assert same(value_of(pickled.root), value)
    assert not pickled.ambiguities
    assert pickled.protocol == protocol or protocol < 2
    assert pickled.opcodes == sum(1 for _ in pickletools.genops(data))


def test_the_graph_does_not_depend_on_where_the_pickle_begins():
    """A pickle in the middle of other data is read from its start to its STOP."""
    data = saved(TORCH["state dict"])
    pickled = decode(b"\x80\x02N." + data + b"tail", 4)
    assert (pickled.start, pickled.end) == (4, 4 + len(data))
    assert encode(pickled) == data
    prove(b"\x80\x02N." + data + b"tail", pickled)


@pytest.mark.parametrize(
    ("protocol", "depth"),
    [(0, 20_000), (1, 20_000), (2, 100_000), (4, 20_000), pytest.param(2, 1_000_000, marks=pytest.mark.slow)],
)
def test_deep_nesting_works_both_ways(protocol, depth):
    """Depth costs no recursion, neither in decoding nor in encoding."""
    opening = {0: b"(l", 1: b"]", 2: b"\x80\x02" + b"]", 4: b"\x80\x04" + b"]"}[protocol]
    one = b"(l" if protocol == 0 else b"]"
    data = opening + one * (depth - 1) + b"a" * (depth - 1) + b"."
    assert_same(data)


@pytest.mark.parametrize("depth", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_nesting_of_tuples_works_both_ways(depth):
    """Depth of MARKs costs no recursion either."""
    assert_same(b"\x80\x02" + b"(" * depth + b"t" * depth + b".")


def test_torchscript_stores_an_object_after_its_state():
    """The C++ pickler of TorchScript writes PUT after BUILD, which a later PUT step keeps."""
    buffer = io.BytesIO()
    with pytest.warns(DeprecationWarning):
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 3)), buffer)
    reader = torch._C.PyTorchFileReader(buffer := io.BytesIO(buffer.getvalue()))
    data = reader.get_record("data.pkl")
    assert b"bq" in data
    assert_same(data)
    for name in reader.get_all_records():
        if name.endswith(".pkl"):
            assert_same(reader.get_record(name))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x80\x02]q\0q\x01.", id="one value has two memo entries"),
        pytest.param(b"\x80\x02]2\x86.", id="DUP"),
        pytest.param(b"\x80\x02]r\x00\0\0\0.", id="a LONG_BINPUT of a small index"),
        pytest.param(b"\x80\x02N0].", id="a value is thrown away"),
        pytest.param(b"\x80\x02NN.", id="a value is left over"),
        pytest.param(b"\x80\x02cbuiltins\nint\n}b.", id="BUILD of a class"),
        pytest.param(b"\x80\x02N\x80\x02.", id="PROTO at the end"),
        pytest.param(b"\x80\x04\x95\x01\0\0\0\0\0\0\0N\x95\x02\0\0\0\0\0\0\0N\x85.", id="a frame within an opcode"),
    ],
)
def test_what_the_graph_cannot_express_is_never_proven(data):
    """A stream that would be written differently fails the proof, which names the byte; what is written is valid."""
    pickled = decode(data)
    with pytest.raises(UnprovenError, match="byte for byte") as caught:
        prove(data, pickled)
    written = encode(pickled)
    first = caught.value.offset
    assert written[:first] == data[:first] and written[first : first + 1] != data[first : first + 1]
    assert pickle.loads(written) == pickle.loads(data)


def test_a_memo_entry_for_two_values_is_proven_as_long_as_nothing_needs_both():
    """Rebinding the memo is written again as it was."""
    assert_same(b"\x80\x02(X\x01\0\0\0aq\0h\0X\x01\0\0\0bq\0h\0t.")
