"""Pickles of Python 2.7, whose strings, old-style classes and memo numbers no Python 3 writes any more.

Made with Python 2.7.18, ``module.dumps(value, protocol)`` for the modules cPickle and pickle and this value::

    class Old: def __init__(self): self.x = 1
    class Given: def __init__(self, a): self.a = a; def __getinitargs__(self): return (self.a,)
    class New(object): def __init__(self): self.y = u'caf\\xe9'
    t = ([],); t[0].append(t)
    u = (1, [], 2, 3); u[1].append(u)
    [1, 2.5, -3, 70000, 2**40, 5L, 'text', 'caf\\xc3\\xa9', u'caf\\xe9 \\\\ \\n', 'it\\'s', None, True, (), (1, 'text'),
     {'a': [1]}, t, u, Old(), Given(7), New(), set([1]), Old]
"""

from __future__ import annotations

import pytest

from ckptdoctor.pickles import Constant, Made, String, Verbatim, decode, plain
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.encode import prove

# fmt: off
PICKLES = {
    ('cPickle', 0): (
        b"(lp1\nI1\naF2.5\naI-3\naI70000\naI1099511627776\naL5L\naS'text'\np2\naS'caf\\xc3\\xa9'\np3\naVcaf\xe9 \\u"
        b'005c \\u000a\np4\naS"it\'s"\np5\naNaI01\na(ta(I1\ng2\ntp6\na(dp7\nS\'a\'\n(lp8\nI1\nasa((lp9\n(g9\ntp10\n'
        b"a00g10\na(I1\n(lp11\n(I1\ng11\nI2\nI3\ntp12\naI2\nI3\n00000g12\na(i__main__\nOld\np13\n(dp14\nS'x'\nI1\ns"
        b"ba(I7\ni__main__\nGiven\np15\n(dp16\nS'a'\nI7\nsbaccopy_reg\n_reconstructor\np17\n(c__main__\nNew\np18\nc"
        b"__builtin__\nobject\np19\nNtRp20\n(dp21\nS'y'\nVcaf\xe9\np22\nsbac__builtin__\nset\np23\n((lp24\nI1\natRp"
        b'25\nac__main__\nOld\np26\na.'
    ),
    ('cPickle', 1): (
        b']q\x01(K\x01G@\x04\x00\x00\x00\x00\x00\x00J\xfd\xff\xff\xffJp\x11\x01\x00I1099511627776\nL5L\nU\x04textq'
        b"\x02U\x05caf\xc3\xa9q\x03X\t\x00\x00\x00caf\xc3\xa9 \\ \nq\x04U\x04it'sq\x05NI01\n)(K\x01h\x02tq\x06}q"
        b'\x07U\x01a]q\x08K\x01as(]q\t(h\ttq\na1h\n(K\x01]q\x0b(K\x01h\x0bK\x02K\x03tq\x0caK\x02K\x031h\x0c(c__main'
        b'__\nOld\nq\roq\x0e}q\x0fU\x01xK\x01sb(c__main__\nGiven\nq\x10K\x07oq\x11}q\x12U\x01aK\x07sbccopy_reg\n_re'
        b'constructor\nq\x13(c__main__\nNew\nq\x14c__builtin__\nobject\nq\x15NtRq\x16}q\x17U\x01yX\x05\x00\x00\x00c'
        b'af\xc3\xa9q\x18sbc__builtin__\nset\nq\x19(]q\x1aK\x01atRq\x1bh\re.'
    ),
    ('cPickle', 2): (
        b'\x80\x02]q\x01(K\x01G@\x04\x00\x00\x00\x00\x00\x00J\xfd\xff\xff\xffJp\x11\x01\x00I1099511627776\n\x8a\x01'
        b"\x05U\x04textq\x02U\x05caf\xc3\xa9q\x03X\t\x00\x00\x00caf\xc3\xa9 \\ \nq\x04U\x04it'sq\x05N\x88)K\x01h"
        b'\x02\x86q\x06}q\x07U\x01a]q\x08K\x01as]q\th\t\x85q\na0h\n(K\x01]q\x0b(K\x01h\x0bK\x02K\x03tq\x0caK\x02K'
        b'\x031h\x0c(c__main__\nOld\nq\roq\x0e}q\x0fU\x01xK\x01sb(c__main__\nGiven\nq\x10K\x07oq\x11}q\x12U\x01aK'
        b'\x07sbc__main__\nNew\nq\x13)\x81q\x14}q\x15U\x01yX\x05\x00\x00\x00caf\xc3\xa9q\x16sbc__builtin__\nset\nq'
        b'\x17]q\x18K\x01a\x85Rq\x19h\re.'
    ),
    ('pickle', 0): (
        b"(lp0\nI1\naF2.5\naI-3\naI70000\naI1099511627776\naL5L\naS'text'\np1\naS'caf\\xc3\\xa9'\np2\naVcaf\xe9 \\u"
        b'005c \\u000a\np3\naS"it\'s"\np4\naNaI01\na(ta(I1\ng1\ntp5\na(dp6\nS\'a\'\np7\n(lp8\nI1\nasa((lp9\n(g9\ntp'
        b"10\na00g10\na(I1\n(lp11\n(I1\ng11\nI2\nI3\ntp12\naI2\nI3\n00000g12\na(i__main__\nOld\np13\n(dp14\nS'x'\np"
        b'15\nI1\nsba(I7\ni__main__\nGiven\np17\n(dp18\ng7\nI7\nsbaccopy_reg\n_reconstructor\np19\n(c__main__\nNew'
        b"\np20\nc__builtin__\nobject\np21\nNtp22\nRp23\n(dp24\nS'y'\np25\nVcaf\xe9\np26\nsbac__builtin__\nset\np27"
        b'\n((lp28\nI1\natp29\nRp30\nac__main__\nOld\np31\na.'
    ),
    ('pickle', 1): (
        b']q\x00(K\x01G@\x04\x00\x00\x00\x00\x00\x00J\xfd\xff\xff\xffJp\x11\x01\x00I1099511627776\nL5L\nU\x04textq'
        b"\x01U\x05caf\xc3\xa9q\x02X\t\x00\x00\x00caf\xc3\xa9 \\ \nq\x03U\x04it'sq\x04NI01\n)(K\x01h\x01tq\x05}q"
        b'\x06U\x01aq\x07]q\x08K\x01as(]q\t(h\ttq\na1h\n(K\x01]q\x0b(K\x01h\x0bK\x02K\x03tq\x0caK\x02K\x031h\x0c(c_'
        b'_main__\nOld\nq\roq\x0e}q\x0fU\x01xq\x10K\x01sb(c__main__\nGiven\nq\x12K\x07oq\x13}q\x14h\x07K\x07sbccopy'
        b'_reg\n_reconstructor\nq\x15(c__main__\nNew\nq\x16c__builtin__\nobject\nq\x17Ntq\x18Rq\x19}q\x1aU\x01yq'
        b'\x1bX\x05\x00\x00\x00caf\xc3\xa9q\x1csbc__builtin__\nset\nq\x1d(]q\x1eK\x01atq\x1fRq h\re.'
    ),
    ('pickle', 2): (
        b'\x80\x02]q\x00(K\x01G@\x04\x00\x00\x00\x00\x00\x00J\xfd\xff\xff\xffJp\x11\x01\x00I1099511627776\n\x8a\x01'
        b"\x05U\x04textq\x01U\x05caf\xc3\xa9q\x02X\t\x00\x00\x00caf\xc3\xa9 \\ \nq\x03U\x04it'sq\x04N\x88)K\x01h"
        b'\x01\x86q\x05}q\x06U\x01aq\x07]q\x08K\x01as]q\th\t\x85q\na0h\n(K\x01]q\x0b(K\x01h\x0bK\x02K\x03tq\x0caK'
        b'\x02K\x031h\x0c(c__main__\nOld\nq\roq\x0e}q\x0fU\x01xq\x10K\x01sb(c__main__\nGiven\nq\x12K\x07oq\x13}q'
        b'\x14h\x07K\x07sbc__main__\nNew\nq\x15)\x81q\x16}q\x17U\x01yq\x18X\x05\x00\x00\x00caf\xc3\xa9q\x19sbc__bui'
        b'ltin__\nset\nq\x1a]q\x1bK\x01a\x85q\x1cRq\x1dh\re.'
    ),
}
# fmt: on


def items(data):
    """The items of the list, in the order above."""
    root = decode(data).root
    assert isinstance(root, Made)
    return [*root.items, *(item for step in root.steps or () for item in step.payload)]


@pytest.mark.parametrize("made_by", PICKLES, ids=str)
def test_pickles_of_python_2_are_written_again_byte_for_byte(made_by):
    """Both of Python 2's picklers and all its protocols are decoded and encoded without a change."""
    data = PICKLES[made_by]
    pickled = decode(data)
    prove(data, pickled)
    assert pickled.protocol == made_by[1]
    assert not pickled.ambiguities


@pytest.mark.parametrize("made_by", PICKLES, ids=str)
def test_strings_of_python_2_are_text_where_they_are_utf_8(made_by):
    """A str that is UTF-8 reads as text, as torch takes it; any other as bytes: only its writer knew the encoding."""
    found = items(PICKLES[made_by])
    assert [each.value for each in found if isinstance(each, String)] == [
        "text", "caf\u00e9", "caf\u00e9 \\ \n", "it's"
    ]  # fmt: skip


@pytest.mark.parametrize("made_by", PICKLES, ids=str)
def test_numbers_and_shared_values_of_python_2_are_read(made_by):
    """Longs of small values keep how they were written; shared strings are one node; recursion is followed."""
    found = items(PICKLES[made_by])
    values = [each.value if isinstance(each, Constant) else each for each in found]
    assert values[:6] == [1, 2.5, -3, 70000, 2**40, 5]
    assert isinstance(found[5], Constant)
    assert found[13].items[1] is found[6]
    recursive = plain(found[15])
    assert plain(recursive.items[0].steps[0].payload[0]) is recursive


@pytest.mark.parametrize("made_by", PICKLES, ids=str)
def test_old_style_instances_are_read(made_by):
    """INST and OBJ name their class first, then the arguments."""
    old, given, new = items(PICKLES[made_by])[17:20]
    assert old.op == (op.INST if made_by[1] == 0 else op.OBJ)
    assert (old.items[0].full, old.items[1:]) == ("__main__.Old", [])
    assert given.items[1:] == [7]
    assert new.items[0].full in ("__main__.New", "copy_reg._reconstructor")


def test_strings_with_other_escapes_keep_their_bytes():
    """A STRING or UNICODE that another program escaped in its own way is written as it was."""
    for data, value in ((b"S'\\x61\\142\\q'\n.", "ab\\q"), (b"V\\u0061\n.", "a"), (b'S"a"\n.', "a")):
        pickled = decode(data)
        assert isinstance(pickled.root, Verbatim)
        assert pickled.root.value == value
        prove(data, pickled)
