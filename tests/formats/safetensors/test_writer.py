"""Editing safetensors files: header patches, with the values copied as they are."""

from __future__ import annotations

import json
import random
import tempfile
from itertools import permutations
from pathlib import Path
from struct import pack

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load, save, save_file

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource
from ckptdoctor.edits import (
    Cast,
    Compact,
    Convert,
    Drop,
    Flatten,
    MakeContiguous,
    Rename,
    RenameModules,
    Replace,
    Retag,
    SetMetadata,
    SetSuffix,
    TakeRoot,
    Truncate,
)
from ckptdoctor.edits.applied.apply_edits import apply
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import RefusedError, UnprovenError
from ckptdoctor.writing import Copy
from tests.formats.safetensors.forge import accepted, entry, file, raw, rewritten

TENSORS = {
    "a.weight": torch.arange(12.0).reshape(3, 4),
    "b": torch.arange(5, dtype=torch.int8),
    "c": torch.arange(4, dtype=torch.float64),
    "e": torch.zeros(0, 3),
    "ü\n": torch.tensor(3.0, dtype=torch.bfloat16),
}


@pytest.fixture
def path(tmp_path):
    """A file with metadata and tensors of several widths."""
    path = tmp_path / "model.safetensors"
    save_file(TENSORS, path, metadata={"format": "pt", "z": "1"})
    return path


def values(data: bytes) -> bytes:
    """What follows the header."""
    return data[8 + int.from_bytes(data[:8], "little") :]


def header(data: bytes) -> dict[str, object]:
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(
        left[key].dtype == right[key].dtype and torch.equal(left[key], right[key]) for key in left
    )


def test_a_rename_changes_the_header_and_copies_the_values(path):
    """Order, metadata and values stay; the values begin at a multiple of eight."""
    out = rewritten(path, Rename((), (("a.weight", "model.a.weight"), ("ü\n", '"\\\t\x7f中'))))
    assert same(
        load(out), {{"a.weight": "model.a.weight", "ü\n": '"\\\t\x7f中'}.get(k, k): v for k, v in TENSORS.items()}
    )
    assert values(out) == values(path.read_bytes())
    assert (len(out) - len(values(out))) % 8 == 0
    old, new = header(path.read_bytes()), header(out)
    assert list(old.values()) == list(new.values())


def test_a_rename_writes_what_safetensors_would_write(path):
    """Where order does not change, the result is byte for byte what save gives under the new names."""
    out = rewritten(path, Rename((), tuple((key, f"x.{key}") for key in TENSORS)))
    mine, real = header(out), header(save({f"x.{key}": tensor for key, tensor in TENSORS.items()}))
    mine.pop("__metadata__")
    assert list(mine.items()) == list(real.items())


def test_keys_can_be_swapped(path):
    """All pairs of a rename apply at once."""
    loaded = load(rewritten(path, Rename((), (("b", "c"), ("c", "b")))))
    assert torch.equal(loaded["b"], TENSORS["c"]) and torch.equal(loaded["c"], TENSORS["b"])


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ((("b", "c"),), ('"b"', '"c"')),
        ((("b", "x"), ("c", "x")), ('"b"', '"c"', '"x"')),
        ((("nothing", "x"),), ('"nothing"',)),
        ((("b", "__metadata__"),), ('"b"', '"__metadata__"')),
        ((("__metadata__", "x"),), ('"__metadata__"',)),
        ((("b", "\udcff"),), ("UTF-8",)),
    ],
)
def test_renames_that_lose_or_miss_a_key_are_refused(path, pairs, words):
    """The message names both keys."""
    with pytest.raises(RefusedError) as caught:
        rewritten(path, Rename((), pairs))
    assert all(word in caught.value.message for word in words)


def test_dropping_tensors_moves_the_others_up(path):
    """What is left loads as before, without a hole; the parts that are kept are copied, not read."""
    out = rewritten(path, Drop((("a.weight",), ("ü\n",))))
    assert accepted(out)
    assert same(load(out), {key: TENSORS[key] for key in ("b", "c", "e")})
    assert header(out)["__metadata__"] == {"format": "pt", "z": "1"}


def test_dropping_everything_leaves_a_sound_file(path):
    """A file without tensors still has its metadata."""
    out = rewritten(path, Drop(tuple((key,) for key in TENSORS)))
    assert accepted(out) and list(header(out)) == ["__metadata__"] and values(out) == b""


def test_edits_apply_one_after_another(path):
    """Each speaks of what the ones before it left."""
    edits = (Drop((("b",),)), Rename((), (("c", "b"),)), Drop((("a.weight",),)), SetMetadata("z", "2"), TakeRoot(()))
    out = rewritten(path, *edits)
    assert same(load(out), {"b": TENSORS["c"], "e": TENSORS["e"], "ü\n": TENSORS["ü\n"]})
    assert header(out)["__metadata__"] == {"format": "pt", "z": "2"}


@pytest.mark.parametrize("before", [None, {}, {"epoch": "3"}, {"format": "tf", "x": "ü"}])
def test_metadata_is_set_whatever_was_there(before, tmp_path):
    """M971: with no metadata at all, one is put in front; other entries stay as they are."""
    path = tmp_path / "m.safetensors"
    save_file({"w": torch.ones(3)}, path, metadata=before)
    out = rewritten(path, SetMetadata("format", "pt"), SetMetadata('"', "\\ü\n"))
    path.write_bytes(out)
    with safe_open(path, "pt") as real:
        assert real.metadata() == {**(before or {}), "format": "pt", '"': "\\ü\n"}
    assert values(out) == values(path.read_bytes())


def test_metadata_that_is_null_becomes_an_object(tmp_path):
    """null is what some writers put for none."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(file({"__metadata__": None, "a": entry(0, 1)}, b"x"))
    assert header(rewritten(path, SetMetadata("format", "pt")))["__metadata__"] == {"format": "pt"}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_style_of_another_writer_is_kept(indent, ascii_only, tmp_path):
    """Blanks, escapes and the order of fields stay where nothing was edited."""
    entries = {"ü": entry(4, 8), "a": {**entry(0, 4), "note": 1.50}, "b": entry(8, 8)}
    text = json.dumps(entries, indent=indent, ensure_ascii=ascii_only)
    path = tmp_path / "m.safetensors"
    path.write_bytes(raw(text, bytes(8)))
    out = rewritten(path, Rename((), (("a", "é"),)), SetMetadata("format", "pt"))
    wanted = {"__metadata__": {"format": "pt"}, **{{"a": "é"}.get(key, key): value for key, value in entries.items()}}
    assert header(out) == wanted and accepted(out) and out[8:].isascii() == ascii_only
    dropped = rewritten(path, Drop((("a",),)))
    assert header(dropped) == {"ü": entry(0, 4), "b": entry(4, 4)} and accepted(dropped)
    back = rewritten(path, Rename((), (("a", "x"),)))
    path.write_bytes(back)
    again = rewritten(path, Rename((), (("x", "a"),)))
    assert again[8:].startswith(text.encode())


FIELDS = ['"dtype" : "F32"', '"shape":[ 1 ,2]', '"data_offsets" :\n[ {},{} ]', '"note":"[1,2]"']


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
@pytest.mark.parametrize("note", [False, True])
def test_of_an_entry_that_moves_and_is_cast_only_dtype_and_offsets_change(order, note, tmp_path):
    """Whatever blanks are in it, in whatever order its fields are, and whatever else it holds."""
    fields = [FIELDS[each] for each in (*order, *([3] if note else []))]
    said = "{" + ", \t".join(fields) + " }"
    path = tmp_path / "m.safetensors"
    old = {"first": entry(0, 8), "w": "@", "x": "@"}
    text = json.dumps(old).replace('"@"', said.replace("{},{}", "8,16"), 1)
    path.write_bytes(raw(text.replace('"@"', said.replace("{},{}", "16,24")), bytes(8) + pack("<4f", 1, 2, 3, 4)))
    out = rewritten(path, Drop((("first",),)), Cast((("w",), ("x",)), "bfloat16"))
    length = int.from_bytes(out[:8], "little")
    moved = [said.replace('"F32"', '"BF16"').replace("{},{}", f"{at},{at + 4}") for at in (0, 4)]
    assert out[8 : 8 + length].decode().rstrip() == f'{{"w": {moved[0]}, "x": {moved[1]}}}'


@pytest.mark.parametrize(
    "edit",
    [
        Retag("cpu"),
        Compact(("b",)),
        MakeContiguous((("b",),)),
        Replace(("b",), 1),
        Flatten(("b",), ()),
        RenameModules((), (("a", "b"),)),
        Convert("torch zip"),
        TakeRoot(("b",)),
        Drop((("nothing",),)),
        Drop(((),)),
        Drop((("b", 0),)),
        Drop((("__metadata__",),)),
        Rename(("state_dict",), ()),
        Truncate(100),
    ],
)
def test_what_the_format_cannot_do_is_refused_with_the_reason(path, edit):
    """Each refusal is a sentence."""
    with pytest.raises(RefusedError, match=r"\.$"):
        rewritten(path, edit, SetMetadata("a", "b"))


@pytest.mark.parametrize(
    "data",
    [
        raw(
            '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            b"x",
        ),
        file({"a": entry(0, 1, "f32")}, b"x"),
        file({"a": entry(0, 1), "b": entry(0, 1)}, b"x"),
        file({"a": entry(0, 4)}, b"x"),
    ],
)
def test_a_header_in_doubt_is_not_edited(data, tmp_path):
    """Which reading is right is nothing that a copy should settle."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    with pytest.raises(UnprovenError):
        rewritten(path, SetMetadata("format", "pt"))


def test_trailing_bytes_must_be_cut_off_not_lost(path):
    """An edit alone refuses; together with the cut at the right place it works."""
    whole = path.read_bytes()
    path.write_bytes(whole + b"more")
    with pytest.raises(RefusedError, match="4 bytes follow"):
        rewritten(path, SetMetadata("a", "b"))
    out = rewritten(path, Truncate(len(whole)), SetMetadata("a", "b"))
    assert accepted(out) and values(out) == values(whole)


def test_cutting_and_renaming_the_file_itself_are_plain_copies(path):
    """Truncate copies the beginning, SetSuffix everything; neither is proven or parsed."""
    whole = path.read_bytes()
    assert rewritten(path, Truncate(20)) == whole[:20]
    assert rewritten(path, SetSuffix(".pt")) == whole
    with pytest.raises(RefusedError):
        rewritten(path, Truncate(len(whole) + 1))


def test_a_header_of_one_writer_is_found_to_be_unaligned_and_aligned_by_the_copy(tmp_path):
    """Values that began anywhere begin at a multiple of eight."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(file({"a": entry(0, 4)}, b"abcd"))
    assert (path.stat().st_size - 4) % 8
    out = rewritten(path, Rename((), (("a", "b"),)))
    assert (len(out) - 4) % 8 == 0 and out.endswith(b"abcd")


def test_ranges_that_meet_are_copied_in_one(path):
    """Dropping two neighbours leaves two ranges at most."""
    with FileSource(path) as source:
        checkpoint = formats.read(source, formats.examine(source))
        recipe = formats.write(wanted_of(checkpoint, (Drop((("a.weight",),)), Drop((("b",),)))), source)
    assert sum(isinstance(segment, Copy) for segment in recipe.segments) <= 2


NAMES = st.text(st.characters(codec="utf-8"), max_size=6).filter(lambda name: name != "__metadata__")


@given(st.lists(NAMES, min_size=1, max_size=6, unique=True), st.data())
@settings(max_examples=80, deadline=None)
def test_any_renames_applied_and_inverted_give_the_original_bytes(names, data):
    """The property that makes a rename safe."""
    targets = data.draw(st.lists(NAMES, min_size=len(names), max_size=len(names), unique=True))
    pairs = tuple(zip(names, targets, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        save_file({name: torch.tensor([index]) for index, name in enumerate(names)}, path, metadata={"format": "pt"})
        original = path.read_bytes()
        forth = rewritten(path, Rename((), pairs))
        assert {key: int(value) for key, value in load(forth).items()} == {new: i for i, new in enumerate(targets)}
        path.write_bytes(forth)
        assert rewritten(path, Rename((), tuple((new, old) for old, new in pairs))) == original


def test_any_edits_give_what_the_nouns_say(tmp_path):
    """The bytes after random edits read like the edited checkpoint, and load."""
    random_ = random.Random(7)
    for _ in range(60):
        path = tmp_path / "m.safetensors"
        dtypes = (torch.int8, torch.float32, torch.float64)
        save_file({f"t{i}": torch.arange(random_.randrange(5)).to(random_.choice(dtypes)) for i in range(6)}, path)
        edits, names = [], [f"t{i}" for i in range(6)]
        for step in range(random_.randint(1, 4)):
            chosen = random_.sample(names, random_.randint(0, min(2, len(names))))
            if random_.random() < 0.5:
                edits.append(Drop(tuple((name,) for name in chosen)))
                names = [name for name in names if name not in chosen]
            else:
                edits.append(Rename((), tuple((name, f"{name}.{step}") for name in chosen)))
                names = [f"{name}.{step}" if name in chosen else name for name in names]
        edits.append(SetMetadata("format", "pt"))
        wanted = apply(formats.open_checkpoint(path), edits)
        before = load(path.read_bytes())
        out = rewritten(path, *edits)
        assert accepted(out)
        path.write_bytes(out)
        got = formats.open_checkpoint(path)
        assert [(t.path, t.dtype, t.shape) for t in got.tensors] == [(t.path, t.dtype, t.shape) for t in wanted.tensors]
        assert got.metadata == wanted.metadata
        for key, value in load(out).items():
            assert torch.equal(value, before[key.partition(".")[0]])
