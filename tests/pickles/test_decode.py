"""What is read from a stream, and what is said about streams that are cut off, damaged or read differently."""

from __future__ import annotations

import gc
import pickle
import random
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ckptdoctor.errors import CkptDoctorError, DamagedError, TruncatedError
from ckptdoctor.pickles import Constant, Global, Made, PersistentId, Popped, String, Tuple, decode, plain
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.encode import encode
from tests.pickles.payloads import OBJECTS, TORCH, saved


def test_globals_are_listed_once_with_their_first_offset():
    """GLOBAL, STACK_GLOBAL and INST count, also within what is thrown away, in order of appearance."""
    data = b"\x80\x04(cos\nsystem\n\x8c\x02os\x8c\x0bpath.exists\x93cos\nsystem\n(icollections\nCounter\ncm\nC\n0e."
    uses = decode(b"\x80\x04](" + data[3:]).globals
    assert [(use.module, use.name) for use in uses] == [
        ("os", "system"),
        ("os", "path.exists"),
        ("collections", "Counter"),
        ("m", "C"),
    ]
    assert uses[0].offset == 4
    assert data[uses[1].offset - 1] == op.STACK_GLOBAL


def test_calls_are_nodes():
    """REDUCE, NEWOBJ, NEWOBJ_EX, OBJ and INST become what was called with what, persistent ids what they name."""
    root = decode(b"(cm\nC\n)R(cm\nC\nI1\no(I2\nim\nC\nPkey\ncm\nC\n)\x81cm\nC\n)}\x92l.").root
    assert isinstance(root, Made)
    assert [node.op for node in root.items] == [op.REDUCE, op.OBJ, op.INST, op.PERSID, op.NEWOBJ, op.NEWOBJ_EX]
    reduced, made, instance, persistent, *_ = root.items
    assert isinstance(reduced, Made) and isinstance(reduced.items[0], Global) and reduced.items[0].full == "m.C"
    assert isinstance(made, Made) and plain(made.items[1]) == 1
    assert isinstance(instance, Made) and instance.items[1] == 2
    assert isinstance(persistent, PersistentId) and isinstance(persistent.id, String) and persistent.id.value == "key"


def test_a_value_reached_twice_is_one_node():
    """What the stream fetches from the memo is the node that it stored."""
    shared = ["x"]
    root = decode(pickle.dumps([shared, shared], 2)).root
    assert isinstance(root, Made)
    first, second = root.steps[0].payload
    assert first is second


def test_constants_written_the_usual_way_are_plain_values():
    """A node for each number would cost many times the pickle; only unusual spellings get one."""
    root = decode(b"\x80\x02(K\x05M\x05\x01J\xff\xff\xff\xffK\x05\x8a\x01\x05J\x05\0\0\0N\x88G?\xf0\0\0\0\0\0\0t.").root
    assert isinstance(root, Tuple)
    usual, unusual = [*root.items[:4], *root.items[6:]], root.items[4:6]
    assert usual == [5, 261, -1, 5, None, True, 1.0]
    assert [(type(each), each.value) for each in unusual] == [(Constant, 5), (Constant, 5)]


def test_a_recursive_tuple_keeps_what_was_thrown_away():
    """What a pickler computes and drops before it fetches the finished tuple is kept beside it."""
    value = ([],)
    value[0].append(value)
    pickled = decode(pickle.dumps(value, 2))
    assert isinstance(pickled.root, Popped)
    assert isinstance(plain(pickled.root), Tuple)
    assert not pickled.ambiguities
    assert not pickled.discards_calls


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"cm\nf\n)R0N.", id="popped"),
        pytest.param(b"(cm\nf\n)R1N.", id="popped with its mark"),
        pytest.param(b"(cm\nf\no0N.", id="OBJ followed by POP"),
        pytest.param(b"]cm\nf\n)Ra0N.", id="within a popped list"),
        pytest.param(b"cm\nf\n)RN.", id="left on the stack"),
        pytest.param(b"cm\nf\n)RN\x86q\x000cm\ng\n(im\nf\nb0N.", id="state of something that is no object"),
        pytest.param(pickle.dumps(OBJECTS["circular reduce"], 2), id="made twice by a pickler"),
    ],
)
def test_calls_whose_results_are_thrown_away_are_told(data):
    """A call that leaves no trace in the result is a call all the same."""
    assert decode(data).discards_calls


def test_a_kept_call_is_no_discarded_call():
    """Throwing away other things does not count, nor does reaching a call through the memo."""
    assert not decode(b"cm\nf\n)Rq\x00N0.").discards_calls
    assert not decode(b"(lp0\ncm\nf\n)Rp1\na0g1\n.").discards_calls


AMBIGUOUS = [
    ("protocol", b"\x80\x06N."),
    ("protocol", b"\x80\x01N."),
    ("protocol", b"\x80\x02N\x80\x02."),
    ("memo-rebound", b"](N\x85q\0]q\0e."),
    ("memo-rebound", b"(I1\np900\nI2\np900\nl."),
    ("memo-index", b"]r\0\0\0\x08."),
    ("memo-index", b"]p100000000\n."),
    ("frame", b"\x80\x04\x95\x02\0\0\0\0\0\0\0(K\x01t."),
    ("frame", b"\x80\x04\x95\x0b\0\0\0\0\0\0\0N\x95\x01\0\0\0\0\0\0\0.."),
    ("frame", b"\x80\x04\x95\x04\0\0\0\0\0\0\0N...."),
    ("leftover", b"NN."),
    ("leftover", b"N(N."),
    ("discarded", b"N0N."),
    ("discarded", b"(NN1N."),
    ("duplicated", b"]2\x86."),
    ("step-target", b"cm\nC\n}b."),
    ("step-target", b"NNa."),
    ("extension", b"\x82\x01."),
    ("persistent-id", b"X\x03\0\0\0a\nbQ."),
    ("global-name", b"c\nf\n."),
    ("global-name", b"cm\n\n."),
    ("global-name", "cm\nfü\n.".encode()),
    ("global-name", b"cos\r\nsystem\n."),
    ("global-name", b"\x8c\x03o\nsX\x01\0\0\0f\x93."),
    ("global-name", b"NX\x01\0\0\0f\x93."),
    ("global-name", b"cm\nf\n)RX\x01\0\0\0f\x93."),
    ("numeral", b"I1_0\n."),
    ("numeral", b"I 1\n."),
    ("numeral", b"I0x10\n."),
    ("numeral", b"I+1\n."),
    ("numeral", b"I010\n."),
    ("numeral", b"I1\0x\n."),
    ("numeral", b"L1_0L\n."),
    ("numeral", b"L 0x10\n."),
    ("numeral", b"F1\0x\n."),
    ("numeral", b"F1e999\n."),
    ("numeral", b"]p 0\n."),
    ("numeral", b"]p0_1\n."),
]


@pytest.mark.parametrize(("kind", "data"), AMBIGUOUS)
def test_what_unpicklers_read_differently_is_marked(kind, data):
    """Each thing on which unpicklers disagree, or that no pickler writes, is named with its place."""
    found = decode(data).ambiguities
    assert kind in {each.kind for each in found}
    assert all(0 <= each.offset < len(data) and f"byte {each.offset}" in each.message for each in found)


def test_only_the_first_hundred_ambiguities_are_kept():
    """A stream of nothing but oddities does not fill the memory with remarks."""
    assert len(decode(b"N0" * 5000 + b"N.").ambiguities) == 100


@pytest.mark.parametrize(
    "line", [b"1_0", b" 1", b"0x10", b"+1", b"010", b"01", b"00", b"-7", b" +0X1f", b"-0", b"1\0x", b"1 "]
)
def test_odd_integers_have_the_value_that_the_c_machine_gives_them(line):
    """INT means what CPython's C unpickler makes of it, or is damaged where that refuses."""
    try:
        expected = pickle.loads(b"I" + line + b"\n.")
    except ValueError:
        with pytest.raises(DamagedError):
            decode(b"I" + line + b"\n.")
        return
    found = decode(b"I" + line + b"\n.").root
    value = found.value if isinstance(found, Constant) else found
    assert (type(value), value) == (type(expected), expected)


def _is_number(line):
    """Whether Python reads the line, up to a NUL, as a number."""
    try:
        float(line.partition(b"\0")[0])
    except ValueError:
        return False
    return True


@settings(deadline=None, max_examples=300)
@example(b"F", b"1E310E")
@example(b"F", b"1E310")
@given(
    st.sampled_from([b"I", b"L", b"F"]),
    st.text("0123456789_xXLeEoOabf+-. \tinn\0", max_size=8).map(str.encode),
)
def test_numerals_are_accepted_exactly_where_the_c_machine_accepts_them(code, line):
    """Whatever is written for a number: the same value as CPython's, or an error where that has one."""
    data = code + line + b"\n."
    try:
        expected = pickle.loads(data)
    except (ValueError, OverflowError, pickle.UnpicklingError) as error:
        if isinstance(error, OverflowError) and _is_number(line):  # inf to the Python machine
            assert decode(data).ambiguities
            return
        with pytest.raises(DamagedError):
            decode(data)
        return
    found = decode(data).root
    value = found.value if isinstance(found, Constant) else found
    assert repr(value) == repr(expected)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x80\x02\xff.", "0xff is not an opcode"),
        (b".", "STOP takes more values"),
        (b"a.", "APPEND takes more values"),
        (b"N(R.", "REDUCE takes more values"),
        (b"]u.", "SETITEMS takes more values"),
        (b"t.", "TUPLE takes more values"),
        (b"(N.", None),
        (b"}(Nu.", "SETITEMS has a key without a value"),
        (b"(Nd.", "DICT has a key without a value"),
        (b"(o.", "OBJ has no class"),
        (b"h\x05.", "BINGET fetches the memo entry 5"),
        (b"g900\n.", "GET fetches the memo entry 900"),
        (b"gx\n.", "not a memo index"),
        (b"p-1\n.", "not a memo index"),
        (b"X\x01\0\0\0\xff.", "BINUNICODE holds a text that is not valid utf-8"),
        (b"c\xff\nf\n.", "GLOBAL names something that is not valid utf-8"),
        ("(iü\nf\n.".encode(), "INST names something that is not valid ascii"),
        ("Pü\n.".encode(), "PERSID has an argument that is not ASCII"),
        (b"Ix\n.", "INT has the argument b'x'"),
        (b"Fx\n.", "FLOAT has the argument b'x'"),
        (b"Sx\n.", "without quotes"),
        (b"S'\\x4'\n.", "broken escape"),
        (b"S'\\'\n.", "broken escape"),
        (b"T\xff\xff\xff\xff.", "negative count"),
        (b"\x8b\xff\xff\xff\xff.", "-1 bytes"),
        (b"\x82\0.", "extension code 0"),
        (b"\x84\xff\xff\xff\xff.", "extension code -1"),
    ],
)
def test_impossible_streams_are_damaged(data, says):
    """What no unpickler can follow is an error with the opcode and its offset."""
    if says is None:
        assert decode(data).ambiguities[0].kind == "leftover"
        return
    with pytest.raises(DamagedError, match=says) as caught:
        decode(data)
    assert f"byte {caught.value.offset}" in caught.value.message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"X\x05\0\0\0abc.",
        b"X\x05\0",
        b"cos\nsys",
        b"K",
        b"M\x01",
        b"r\0",
        b"\x8d" + b"\xff" * 8,
        b"I12",
        b"G\0",
    ],
)
def test_a_stream_that_is_cut_off_says_so(data):
    """A missing end is told apart from damage within."""
    with pytest.raises(TruncatedError) as caught:
        decode(data)
    assert caught.value.offset is not None


SAMPLES = {
    "state dict": saved(TORCH["state dict"]),
    "optimizer, protocol 4": saved(TORCH["optimizer and scheduler"], 4),
    "objects": pickle.dumps([value for name, value in OBJECTS.items() if name not in ("many", "large")], 2),
    "objects, protocol 5": pickle.dumps([value for name, value in OBJECTS.items() if name not in ("many", "large")], 5),
    "numbers, protocol 0": pickle.dumps([1, 2.5, 10**30, "a\n", b"b", {"c": (None, True)}], 0),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_stream_cut_at_any_byte_is_truncated(name):
    """Every proper beginning of a pickle is an error of this package, never anything else."""
    data = SAMPLES[name]
    for end in range(0, len(data), 1 + len(data) // 2000):
        with pytest.raises(DamagedError):
            decode(data[:end])


@pytest.mark.parametrize("name", SAMPLES)
def test_flipped_bytes_give_errors_of_this_package_or_a_pickle(name):
    """Damage anywhere never gets another exception, and what can be read can be written."""
    data, draw = SAMPLES[name], random.Random(name)
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(draw.choice((1, 1, 3))):
            damaged[draw.randrange(len(data))] = draw.randrange(256)
        try:
            encode(decode(bytes(damaged)))
        except CkptDoctorError as error:
            assert error.message


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from([bytes((code,)) for code in op.NAMES]) | st.binary(max_size=4), max_size=40))
def test_any_bytes_give_errors_of_this_package_or_a_pickle(parts):
    """So does any sequence of opcodes and bytes."""
    try:
        encode(decode(b"".join(parts) + b"."))
    except CkptDoctorError as error:
        assert error.message


def test_the_garbage_collector_is_left_as_it_was():
    """It rests while a stream is decoded, and goes on afterwards if it was on, after errors too."""
    assert gc.isenabled()
    with pytest.raises(DamagedError):
        decode(b"\xff")
    assert gc.isenabled()
    gc.disable()
    try:
        decode(b"N.")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_protocols_without_a_mark_are_told_apart():
    """Protocols 0 and 1 do not announce themselves; their numbers and memo opcodes show which it is."""
    for value in ([1], [1.5], {"a": (1, 2)}, "text", True, None):
        for protocol in (0, 1):
            pickled = decode(pickle.dumps(value, protocol))
            assert encode(pickled) == pickle.dumps(value, protocol)


def test_out_of_band_buffers_are_references():
    """NEXT_BUFFER and READONLY_BUFFER stand for data that lie outside the pickle."""
    buffers = []
    data = pickle.dumps(pickle.PickleBuffer(b"abc"), 5, buffer_callback=buffers.append)
    root = decode(data).root
    assert isinstance(root, PersistentId)
    assert root.op == op.READONLY_BUFFER
    assert encode(decode(data)) == data


def test_opcode_names_and_numbers_are_those_of_pickle():
    """The table of opcodes agrees with CPython's."""
    for code, name in op.NAMES.items():
        assert getattr(pickle, name) == bytes((code,))
    assert len(op.NAMES) == 68
    assert struct.calcsize("<Q") == op.ARGUMENT_SIZE[op.FRAME]
