"""Files of llama.cpp, as its gguf package writes them, and as nobody should."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ckptdoctor
from ckptdoctor.checkpoint import FileSource, NoteKind
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import CkptDoctorError, DamagedError, NotACheckpointError, RefusedError
from ckptdoctor.formats import examine, open_checkpoint, opened, read, write
from ckptdoctor.formats.gguf import header
from tests.formats.comparing import assert_same
from tests.formats.gguf.forge import entry, gguf_bytes, text
from tests.formats.mangling import PLACES, endure

FLOATS = np.arange(64, dtype="f4").reshape(2, 32)
PLAIN = {
    "token_embd.weight": ("F32", (2, 32), FLOATS.tobytes()),
    "output_norm.weight": ("F16", (32,), FLOATS[0].astype("f2").tobytes()),
}
PACKED = {"blk.0.ffn_up.weight": ("Q8_0", (2, 64), bytes(2 * 2 * 34))}
METADATA = {"general.name": "tiny", "llama.block_count": 2, "tokens": ["a", "b"] * 9, "odd": [[1, 2], [3]], "y": True}


def saved(data, folder, name="model.gguf"):
    path = folder / name
    path.write_bytes(data)
    return path


def test_tensors_and_metadata_are_listed(tmp_path):
    """Plain tensors have their values, packed ones their shape, class and bytes; metadata is told in short."""
    path = saved(gguf_bytes(PLAIN | PACKED, METADATA), tmp_path)
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "GGUF file" and not checkpoint.notes
    kinds = [(each.key, each.shape, each.dtype.name, each.subclass, each.nbytes) for each in checkpoint.tensors]
    assert kinds == [
        ("token_embd.weight", (2, 32), "float32", None, 256),
        ("output_norm.weight", (32,), "float16", None, 64),
        ("blk.0.ffn_up.weight", (2, 64), "float32", "gguf.Q8_0", 136),
    ]
    assert checkpoint.metadata["tokens"] == "[a, b, a, b, a, b, a, b, … 18 in all]"
    assert checkpoint.metadata["odd"] == "[[1, 2], [3]]" and checkpoint.metadata["y"] == "true"
    loaded = ckptdoctor.load(path)
    assert_same(loaded["token_embd.weight"], FLOATS)
    assert loaded["blk.0.ffn_up.weight"].class_name == "gguf.Q8_0"


@pytest.mark.parametrize(("order", "version"), [("<", 2), (">", 3)])
def test_both_versions_and_byte_orders_are_read(order, version, tmp_path):
    """Big-endian values are noted, and turned where they are loaded."""
    turned = {"w": ("F32", (2, 32), FLOATS.astype(f"{order}f4").tobytes())}
    path = saved(gguf_bytes(turned, METADATA, order=order, version=version), tmp_path)
    noted = [note.kind for note in open_checkpoint(path).notes]
    assert noted == ([NoteKind.BIG_ENDIAN] if order == ">" else [])
    assert_same(ckptdoctor.load(path)["w"], FLOATS)


def test_a_type_that_is_not_known_keeps_its_bytes(tmp_path):
    """It is shown by its number, with the bytes up to the next tensor."""
    path = saved(gguf_bytes({"new": (99, (2, 32), bytes(40)), **PLAIN}), tmp_path)
    tensor = open_checkpoint(path).tensors[0]
    assert (tensor.subclass, tensor.shape, tensor.nbytes) == ("gguf.type_99", (2, 32), 64)


def test_a_file_that_is_cut_off_says_so(tmp_path):
    """The list of tensors is whole, and their values are not."""
    data = gguf_bytes(PLAIN)
    checkpoint = open_checkpoint(saved(data[:-8], tmp_path))
    assert [(note.kind, note.offset) for note in checkpoint.notes] == [(NoteKind.TRUNCATED, len(data) - 8)]
    found = ckptdoctor.check(tmp_path / "model.gguf").findings
    assert [each.code for each in found] == ["C114", "F014"] and "its tensors continue to byte" in found[1].message


def test_check_calls_it_what_it_is_and_judges_nothing_else(tmp_path):
    """It is for llama.cpp: torch's rules do not speak of it."""
    report = ckptdoctor.check(saved(gguf_bytes(PLAIN | PACKED), tmp_path))
    assert [each.code for each in report.findings] == ["C114"]


@pytest.mark.parametrize("command", ["fix", "convert"])
def test_it_is_neither_repaired_nor_converted(command, tmp_path):
    """The message names the programs that read it; edits that reach the format are refused, too."""
    path = saved(gguf_bytes(PLAIN), tmp_path)
    with pytest.raises(NotACheckpointError, match="weights for llama"):
        ckptdoctor.fix(path) if command == "fix" else ckptdoctor.convert(path, tmp_path / "o.pt")
    with opened(path) as (source, container), pytest.raises(RefusedError, match="convert_hf_to_gguf"):
        write(wanted_of(read(source, container), ()), source)


def begun(tensors, pairs):
    """The beginning of a header: how many tensors and pairs of metadata there are."""
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs)


HOSTILE = {
    "tensors without end": begun(1 << 60, 0),
    "metadata without end": begun(1, 1 << 60) + bytes(64),
    "another version": b"GGUF" + struct.pack("<IQQ", 7, 1, 0) + bytes(64),
    "a text of 2^60 bytes": begun(1, 1) + struct.pack("<Q", 1 << 60) + bytes(64),
    "a list of 2^60 texts": begun(0, 1) + text("k") + struct.pack("<IIQ", 9, 8, 1 << 60) + bytes(64),
    "lists in lists in lists": begun(0, 1)
    + text("k")
    + struct.pack("<I", 9)
    + struct.pack("<IQ", 9, 1) * 40
    + bytes(64),
    "a tensor of nine dimensions": begun(1, 0) + entry("w", (1,) * 9, 0, 0) + bytes(64),
    "a tensor of 2^120 elements": begun(1, 0) + entry("w", (1 << 60,) * 2, 0, 0) + bytes(64),
    "a tensor beyond all files": begun(1, 0) + entry("w", (4,), 0, (1 << 63) - 32) + bytes(64),
    "rows that are no blocks": begun(1, 0) + entry("w", (4, 33), 8, 0) + bytes(64),
    "a tensor off its place": begun(1, 0) + entry("w", (4,), 0, 5) + bytes(64),
    "a name twice": begun(2, 0) + entry("w", (4,), 0, 0) * 2 + bytes(64),
    "an alignment of 3": gguf_bytes(PLAIN, {"general.alignment": 3}),
    "a key twice": begun(1, 2) + (text("k") + struct.pack("<IB", 0, 1)) * 2 + bytes(64),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_header_that_cannot_be_is_damage(name, tmp_path):
    """Nothing that it declares is believed: the file is named with what is wrong, and nothing is allocated for it."""
    with FileSource(saved(HOSTILE[name], tmp_path)) as source:
        container = examine(source)
        assert (container.format, container.readable, container.notes) == ("GGUF file", False, ())
        assert "header is damaged: " in container.guidance and source.bytes_read < 10_000
        with pytest.raises(DamagedError):
            header.read_header(source)


def test_texts_in_the_metadata_are_counted(tmp_path, monkeypatch):
    """Empty texts take eight bytes each: a file of them would be read for hours."""
    monkeypatch.setattr(header, "_MOST_ITEMS", 100)
    path = saved(gguf_bytes(PLAIN, {"a": ["x"] * 70, "b": ["x"] * 70}), tmp_path)
    with FileSource(path) as source:
        assert "more than 100 texts" in examine(source).guidance


@PLACES
def test_a_mangled_file_is_read_or_refused(places, tmp_path):
    """Cut at every byte, and with every byte changed."""
    endure(gguf_bytes(PLAIN | PACKED, METADATA), tmp_path, places)


@given(st.binary(max_size=400), st.integers(0, 400))
def test_any_bytes_behind_the_magic_are_read_or_refused(tmp_path_factory, data, keep):
    """Random ones, and random ones behind the beginning of a real header."""
    path = tmp_path_factory.getbasetemp() / "any.gguf"
    path.write_bytes((gguf_bytes(PLAIN | PACKED, METADATA)[:keep] if keep > 4 else b"GGUF") + data)
    with FileSource(path) as source:
        try:
            read(source, examine(source))
        except CkptDoctorError as error:
            assert error.message
        assert source.bytes_read <= 4 * source.size + 4096


def test_what_the_gguf_package_writes_is_read_as_it_reads_it(tmp_path):
    """Names, shapes, types and places of every kind of tensor."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_array("tokens", ["a", "b"] * 50)
    kinds = gguf.GGMLQuantizationType
    for kind, (elements, nbytes) in gguf.GGML_QUANT_SIZES.items():
        raw = np.zeros((3, 2 * nbytes), np.uint8)
        numbers = elements == 1 and kind.name != "BF16"
        held = raw.view(f"{kind.name[0].lower()}{nbytes}") if numbers else raw
        writer.add_tensor(f"{kind.name}.weight", held, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = {each.key: each for each in open_checkpoint(tmp_path / "model.gguf").tensors}
    theirs = gguf.GGUFReader(tmp_path / "model.gguf").tensors
    assert len(found) == len(theirs) == len(kinds)
    for each in theirs:
        mine = found[each.name]
        extent = (mine.parts[0] if mine.parts else mine).storage.extent
        assert mine.shape == tuple(reversed(each.shape.tolist()))
        assert (extent.offset, extent.length) == (each.data_offset, each.n_bytes)
