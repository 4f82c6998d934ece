"""Streams built to exhaust their reader end in an answer, in no more time than honest ones and in bounded memory."""

from __future__ import annotations

import pickle
from dataclasses import fields

import pytest

from ckptdoctor.errors import HostileError
from ckptdoctor.pickles import Budgets, decode
from ckptdoctor.pickles import opcodes as op
from tests.pickles.children import run

MILLION = 1_000_000

# 1.5 GB of address space, whatever the stream asks for
LIMIT = "resource.setrlimit(resource.RLIMIT_AS, (1500 << 20, 1500 << 20))"

LAUGHS = b"\x80\x02)q\0" + b"".join(b"h%c\x86q%c" % (at, at + 1) for at in range(100)) + b"."

# stream → what must be said first
STREAMS = {
    "LONG_BINPUT 2^27": (b"\x80\x02Nr\0\0\0\x08.", "memo-index"),
    "PUT 10^8": (b"Np100000000\n.", "memo-index"),
    "PUT with a million digits": (b"Np" + b"1" * MILLION + b"\n.", "HostileError"),
    "BINBYTES8 of 2^62": (b"\x80\x04\x8e" + b"\0" * 7 + b"\x40.", "TruncatedError"),
    "BINUNICODE8 of 2^63": (b"\x80\x04\x8d" + b"\xff" * 8 + b".", "TruncatedError"),
    "BYTEARRAY8 of 2^40": (b"\x80\x05\x96\0\0\0\0\0\x01\0\0.", "TruncatedError"),
    "FRAME of 2^40": (b"\x80\x04\x95\0\0\0\0\0\x01\0\0.", "TruncatedError"),
    "LONG4 of 2^31": (b"\x80\x02\x8b\xff\xff\xff\x7f.", "TruncatedError"),
    "LONG4 of a megabyte": (b"\x80\x02\x8b\0\0\x10\0" + b"\x7f" * (1 << 20) + b".", "HostileError"),
    "BINUNICODE of 2^32": (b"\x80\x02X\xff\xff\xff\xff.", "TruncatedError"),
    "INT of a million digits": (b"I" + b"9" * MILLION + b"\n.", "HostileError"),
    "LONG of a million digits": (b"L" + b"9" * MILLION + b"L\n.", "HostileError"),
    "FLOAT of a million digits": (b"F" + b"9" * MILLION + b"\n.", "HostileError"),
    "a line without an end": (b"c" + b"a" * MILLION, "HostileError"),
    "text without an end": (b"V" + b"a" * MILLION, "TruncatedError"),
    "a flood of NONE": (b"\x80\x02" + b"N" * MILLION + b".", "leftover"),
    "a flood of EMPTY_SET": (b"\x80\x04" + b"\x8f" * MILLION + b".", "leftover"),
    "a flood of EMPTY_DICT": (b"\x80\x02" + b"}" * MILLION + b".", "leftover"),
    "a flood of MARK": (b"\x80\x02" + b"(" * 2_200_000 + b".", "HostileError"),
    "a flood of GLOBAL": (b"\x80\x02" + b"".join(b"c%d\nf\n" % at for at in range(60000)) + b".", "HostileError"),
    "a flood of FRAME": (b"\x80\x04" + b"\x95\0\0\0\0\0\0\0\0" * 100_100 + b"N.", "HostileError"),
    "a flood of POP": (b"\x80\x02N" + b"N0" * 300_000 + b".", "discarded"),
    "lists in each other": (b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".", "read"),
    "tuples in each other": (b"\x80\x02)" + b"\x85" * 300_000 + b".", "read"),
    "dicts as keys of each other": (b"\x80\x02" + b"}" * 200_000 + b"Ns" * 199_999 + b".", "read"),
    "calls in each other": (b"\x80\x02cm\nf\n" + b")R" * 200_000 + b".", "read"),
    "states in each other": (b"\x80\x02" + b"cm\nf\n)R" * 200_000 + b"b" * 199_999 + b".", "read"),
    "colliding keys": (
        b"\x80\x02}("
        + b"".join(
            b"\x8a\x0a" + (at * ((1 << 61) - 1) + (1 << 62)).to_bytes(10, "little") + b"N" for at in range(100_000)
        )
        + b"u.",
        "read",
    ),
    "tuples of tuples as keys": (b"\x80\x02}" + LAUGHS[2:-1] + b"Ns.", "read"),
    "billion laughs": (LAUGHS, "read"),
    "billion laughs by DUP": (b"\x80\x02)" + b"2\x86" * 1000 + b".", "duplicated"),
}


@pytest.mark.slow
def test_no_stream_exhausts_its_reader(tmp_path):
    """Each attack is answered, and written again where it was read, under 1.5 GB; none takes long.

    All have at most 2.2 MB, and what is long is measured by an honest pickle of 4.3 MB.
    """
    honest = pickle.dumps([{f"a{at}": (at, [at])} for at in range(100_000)], 2)
    *said, (_, usual, _) = run(tmp_path, [*[data for data, _ in STREAMS.values()], honest], after=LIMIT)
    assert {name: outcome[0] for name, (outcome, _, _) in zip(STREAMS, said, strict=True)} == {
        name: expected for name, (_, expected) in STREAMS.items()
    }
    assert max(seconds for _, seconds, _ in said) < 4 * usual


SMALL = [
    ("opcodes", b"N0" * 70000 + b"N."),
    ("nodes", b")" * 70000 + b"."),
    ("stack", b"N" * 70000 + b"."),
    ("marks", b"(" * 70000 + b"."),
    ("memo", b"".join(b"Nr" + at.to_bytes(4, "little") + b"0" for at in range(15000)) + b"N."),
    ("globals", b"ca\nf\ncb\nf\ncc\nf\n."),
    ("digits", b"I1234\n."),
    ("integer_bytes", b"\x8b\x03\0\0\0abc."),
    ("frames", b"\x80\x04" + b"\x95\0\0\0\0\0\0\0\0" * 3 + b"N."),
    ("line", b"cabc\nf\n."),
]


@pytest.mark.parametrize(("name", "data"), SMALL)
def test_an_exceeded_budget_is_named(name, data):
    """Each budget has an error that names it and the byte."""
    with pytest.raises(HostileError, match=f"budget of 2 for {name.replace('_', ' ')} at byte") as caught:
        decode(data, budgets=Budgets(**{name: 2}))
    assert caught.value.offset is not None


def test_every_budget_is_tested():
    """No budget is only a promise."""
    assert [name for name, _ in SMALL] == [field.name for field in fields(Budgets)]


def test_a_genuine_pickle_of_100_mb_is_far_from_every_budget():
    """750,000 tensors need 24 million opcodes and 7.5 million nodes and memo entries."""
    budgets = Budgets()
    assert budgets.opcodes >= 2 * 24_000_000
    assert min(budgets.nodes, budgets.memo) >= 1.5 * 7_500_000
    assert op.MARK == 0x28
