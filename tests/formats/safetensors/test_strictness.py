"""We refuse what safetensors refuses, and complain of nothing that it takes but names that are there twice."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource, NoteKind
from ckptdoctor.checkpoint.dtypes import BY_SAFETENSORS
from tests.formats.safetensors.forge import accepted, entry, raw

COMPLAINTS = {
    NoteKind.HEADER_INVALID,
    NoteKind.OFFSETS_INVALID,
    NoteKind.TRUNCATED,
    NoteKind.TRAILING_BYTES,
}

PLAIN = '"shape":[2],"data_offsets":[0,8]'
DEEP = "[" * 125 + "]" * 125
DEEPER = "[" * 126 + "]" * 126
# each is a header in front of eight bytes of data
ODD_HEADERS = (
    '{"a":["F32",[2],[0,8]]}',
    '{"a":["F32",[2],[0,8],1]}',
    '{"a":["F32",[2]]}',
    f'{{"a":{{"dtype":{{"F32":null}},{PLAIN}}}}}',
    f'{{"a":{{"dtype":{{"F32":[]}},{PLAIN}}}}}',
    f'{{"a":{{"dtype":{{"F32":null,"F32":null}},{PLAIN}}}}}',
    f'{{"a":{{"dtype":["F32",null],{PLAIN}}}}}',
    f'{{"a":{{"dtype":0,{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","x":{DEEP},{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","x":{DEEPER},{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","x":{{"y":{DEEP}}},{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","x":1e400,{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","x":1e-400,{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","x":1{"0" * 300},{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","x":1{"0" * 400},{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","x":[{{"y":-1{"0" * 400}}}],{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","x":-0,{PLAIN}}}}}',
    '{"a":{"dtype":"F32","shape":[2],"data_offsets":[-0,8]}}',
    '{"a, -0":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
    f'{{"a":{{"dtype":"F32","x":1,"x":2,{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","dtype":"F32",{PLAIN}}}}}',
    '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"shape":[2]}}',
    f'  \n\t\r{{"a":{{"dtype":"F32",{PLAIN}}}}} \n\t',
    f'{{"__metadata__":{{"a":"b","a":"c"}},"a":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"__metadata__":null,"__metadata__":null,"a":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"__metadata__":[],"a":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"__metadata__":{{"dtype":"F32",{PLAIN}}},"a":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32",{PLAIN}}},"a":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"a":{{"dtype":"x",{PLAIN}}},"a":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F64",{PLAIN}}},"a":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"dtype":"F32",{PLAIN}}}',
    "[]",
    "null",
    '"a"',
    '{"a":null}',
    '{"a":{}}',
    '{"a":{"dtype":"F32","shape":null,"data_offsets":[0,8]}}',
    '{"a":{"dtype":"F32","shape":{"0":2},"data_offsets":[0,8]}}',
    '{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}',
    '{"a":{"dtype":"F32","shape":[true,2],"data_offsets":[0,8]}}',
    '{"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}}',
    '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}}',
    '{"a":{"dtype":"F32","shape":[2],"data_offsets":"08"}}',
    '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8e0]}}',
    '{"a":{"dtype":"F32","shape":[0,18446744073709551615,2],"data_offsets":[0,0]},"b":["F64",[],[0,8]]}',
    '{"a":{"dtype":"F32","shape":[18446744073709551615,2,0],"data_offsets":[0,0]},"b":["F64",[],[0,8]]}',
    '{"a":{"dtype":"F32","shape":[18446744073709551616,0],"data_offsets":[0,0]},"b":["F64",[],[0,8]]}',
    '{"a":{"dtype":"F4","shape":[16],"data_offsets":[0,8]}}',
    '{"a":{"dtype":"F4","shape":[15],"data_offsets":[0,8]}}',
    f'\ufeff{{"a":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"a\\ud83d\\ude00":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"a\\ud83d\\u0041":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"a\\ud83dx":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"a\\\\ud83d":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"a\\ude00":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","\\ud83d":1,{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","x":"\\udc00",{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F\\u00332",{PLAIN}}}}}',
    f'{{"a\x7f":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"a\t":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"a\\t":{{"dtype":"F32",{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","x":NaN,{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32","x":-Infinity,{PLAIN}}}}}',
    f'{{"a":{{"dtype":"F32",{PLAIN}}},}}',
    f'{{"a":{{"dtype":"F32",{PLAIN}}}}}\0\0',
    f'{{"a":{{"dtype":"F32","x":01,{PLAIN}}}}}',
    f'{{"":{{"dtype":"F32",{PLAIN}}}}}',
)


def complaint(data: bytes, folder: Path) -> str:
    """What we say against the file; "" when nothing."""
    path = folder / "odd.safetensors"
    path.unlink(missing_ok=True)  # a file that is written over waits for the disk
    path.write_bytes(data)
    with FileSource(path) as source:
        container = formats.examine(source)
        assert container.format == "safetensors" or not container.readable
        if not container.readable:
            return container.notes[0].message if container.notes else container.guidance
        checkpoint = formats.read(source, container)
        return "; ".join([note.message for note in checkpoint.notes if note.kind in COMPLAINTS])


@pytest.mark.parametrize("header", ODD_HEADERS)
def test_odd_headers_are_judged_as_safetensors_judges_them(header, tmp_path):
    """Each corner of serde's reading: forms, numbers, depth, surrogates, duplicates."""
    data = raw(header, bytes(8))
    said = complaint(data, tmp_path)
    assert accepted(data) == (not said), said


def sound(random_: random.Random) -> str:
    """A header in front of eight bytes that safetensors takes."""
    bounds = sorted(random_.sample(range(9), random_.randint(0, 3)))
    places = list(zip([0, *bounds], [*bounds, 8], strict=True))
    entries: dict[str, object] = {f"t{index}": entry(*place) for index, place in enumerate(places)}
    if random_.random() < 0.5:
        entries["__metadata__"] = {"format": "pt"}
    return json.dumps(entries, separators=random_.choice([(",", ":"), (", ", ": ")]))


def mutated(text: str, random_: random.Random) -> bytes:
    """The text with one to three small changes that a broken writer or a broken disk could make."""
    data = bytearray(text.encode())
    bits = [*b'"{}[]:,0123456789-.eE\\ utFU_nx', 0, 10, 0x7F, 0xC3, 0xFF]
    for _ in range(random_.randint(1, 3)):
        at = random_.randrange(len(data))
        match random_.randrange(6):
            case 0:
                data[at] = random_.choice(bits)
            case 1:
                del data[at : at + random_.randint(1, 4)]
            case 2:
                data[at:at] = bytes(random_.choices(bits, k=random_.randint(1, 3)))
            case 3 | 4:
                data[:] = data.replace(b",", random_.choice([b" ,", b",\n", b",\r\t"]))
            case _:
                other = random_.randrange(len(data))
                data[at:at] = data[other : other + random_.randint(1, 30)]
        if not data:
            return b"{"
    return bytes(data)


def test_mutated_headers_are_judged_as_safetensors_judges_them(tmp_path):
    """Three thousand seeded mutations of sound headers."""
    random_ = random.Random(20261121)
    refused = 0
    for _ in range(3000):
        data = raw(mutated(sound(random_), random_), bytes(8))
        if random_.random() < 0.1:
            data = data[: random_.randrange(9, len(data))]
        said = complaint(data, tmp_path)
        refused += bool(said)
        assert accepted(data) == (not said), (data, said)
    assert 300 < refused < 2800  # both verdicts were tried often enough


NUMBERS = st.one_of(
    st.integers(0, 9), st.sampled_from([-1, 2**63, 2**64 - 1, 2**64, 1.5, 8.0, True, None, "3", [], 10**400])
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.one_of(st.sampled_from([*BY_SAFETENSORS, "f32", "", "F128"]), NUMBERS),
        "shape": st.one_of(st.lists(NUMBERS, max_size=3), NUMBERS),
        "data_offsets": st.one_of(st.lists(NUMBERS, min_size=1, max_size=3), st.just([0, 8]), NUMBERS),
        "extra": st.recursive(NUMBERS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5),
    },
)
NAMES = st.one_of(st.text(st.characters(codec="utf-8"), max_size=4), st.just("__metadata__"), st.just("a"))


@given(st.dictionaries(NAMES, st.one_of(FIELDS, st.builds(entry, st.just(0), st.integers(0, 8)), NUMBERS), max_size=3))
@settings(max_examples=300, deadline=None)
def test_any_json_is_judged_as_safetensors_judges_it(entries):
    """Headers that are JSON of the right form with wrong things in it."""
    data = raw(json.dumps(entries, ensure_ascii=False), bytes(8))
    with tempfile.TemporaryDirectory() as folder:
        said = complaint(data, Path(folder))
    assert accepted(data) == (not said), said
