"""Reading real safetensors files, and damaged ones."""

from __future__ import annotations

import os

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file, save_model

from ckptdoctor import formats
from ckptdoctor.checkpoint import Elided, FileSource, Mapping, NoteKind, Role, Tensor
from ckptdoctor.checkpoint.dtypes import BY_SAFETENSORS
from ckptdoctor.errors import CkptDoctorError, DamagedError, TruncatedError
from tests.formats.safetensors.forge import entry, examined, file, opened, raw, written


def kinds(holder) -> list[NoteKind]:
    return [note.kind for note in holder.notes]


def test_every_dtype_that_torch_can_save_is_read_as_safetensors_reads_it(tmp_path):
    """Names, dtypes, shapes, metadata and bytes are those that safetensors gives."""
    names = [dtype.name for dtype in BY_SAFETENSORS.values() if hasattr(torch, dtype.name)]
    tensors = {name: torch.arange(24).reshape(2, 3, 4).to(torch.float32).to(getattr(torch, name)) for name in names}
    tensors |= {"scalar": torch.tensor(7), "empty": torch.zeros(0, 5), "ü \n\x00": torch.ones(3, dtype=torch.int8)}
    path = tmp_path / "all.safetensors"
    save_file(tensors, path, metadata={"format": "pt", "note": "ü\n"})
    checkpoint = formats.open_checkpoint(path)
    data = path.read_bytes()
    assert len(names) >= 18
    assert checkpoint.format == "safetensors" and checkpoint.notes == ()
    assert checkpoint.metadata == {"format": "pt", "note": "ü\n"}
    assert {tensor.key for tensor in checkpoint.tensors} == set(tensors)
    for tensor in checkpoint.tensors:
        real = tensors[tensor.key]
        extent = tensor.storage.extent
        assert tensor.shape == real.shape and tensor.stride == real.stride()
        assert f"torch.{tensor.dtype.name}" == str(real.dtype)
        held = data[extent.offset : extent.offset + extent.length]
        assert held == bytes(real.contiguous().view(-1).untyped_storage())[: extent.length]


@pytest.mark.parametrize("code", ["F4", "F6_E2M3", "F6_E3M2"])
def test_dtypes_narrower_than_a_byte_are_counted_in_bits(code, tmp_path):
    """Eight elements of a sub-byte dtype take as many bytes as one element has bits."""
    bits = BY_SAFETENSORS[code].bits
    checkpoint = opened(file({"a": entry(0, bits, code, [8])}, bytes(bits)), tmp_path)
    assert checkpoint.notes == () and checkpoint.tensors[0].nbytes == bits


def test_the_tree_is_flat_and_in_header_order(tmp_path):
    """One dict at the root, its tensors in the order of the header, each on a storage called after it."""
    entries = {"z": entry(4, 8), "a": entry(0, 4)}
    checkpoint = opened(file(entries, bytes(8)), tmp_path)
    assert isinstance(checkpoint.tree, Mapping) and checkpoint.tree.kind == "dict"
    assert [part for part, _ in checkpoint.tree.entries] == ["z", "a"]
    assert [tensor.path for tensor in checkpoint.tensors] == [("z",), ("a",)]
    assert [storage.key for storage in checkpoint.storages] == ["z", "a"]
    (state_dict,) = checkpoint.state_dicts
    assert (state_dict.path, state_dict.role, state_dict.keys) == ((), Role.MODEL, ("z", "a"))


def test_a_file_without_tensors_has_no_state_dict(tmp_path):
    """Metadata alone is a sound file in which there is nothing to load."""
    path = tmp_path / "none.safetensors"
    save_file({}, path, metadata={"format": "pt"})
    checkpoint = formats.open_checkpoint(path)
    assert checkpoint.tensors == () and checkpoint.state_dicts == () and checkpoint.notes == ()


def test_what_save_model_writes_is_read(tmp_path):
    """Tied weights are written once, and their other names are in the metadata."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    path = tmp_path / "tied.safetensors"
    save_model(model, str(path))
    checkpoint = formats.open_checkpoint(path)
    with safe_open(path, "pt") as real:
        assert list(real.keys()) == [tensor.key for tensor in checkpoint.tensors]
        assert real.metadata() == checkpoint.metadata


def test_only_the_header_is_read_of_a_sparse_file_of_100_gb(tmp_path):
    """A file of any size opens by its header."""
    size = 100 << 30
    path = tmp_path / "big.safetensors"
    path.write_bytes(file({"w": entry(0, size)}))
    os.truncate(path, path.stat().st_size + size)
    checkpoint = formats.open_checkpoint(path)
    assert checkpoint.notes == () and checkpoint.tensors[0].nbytes == size
    assert checkpoint.bytes_read < 10_000


def test_a_truncated_file_still_lists_what_it_has(tmp_path):
    """The note counts the whole tensors; extents are cut at the end of the file, or gone."""
    data = file({"a": entry(0, 8), "b": entry(8, 16), "c": entry(16, 24)}, bytes(24))
    checkpoint = opened(data[:-12], tmp_path)
    (note,) = checkpoint.notes
    assert note.kind is NoteKind.TRUNCATED and "1 of 3" in note.message and '"b"' in note.message
    assert [tensor.storage.extent and tensor.storage.extent.length for tensor in checkpoint.tensors] == [8, 4, None]


def test_trailing_bytes_are_a_note_with_the_right_end(tmp_path):
    """The note's offset is where the last tensor ends."""
    data = file({"a": entry(0, 8)}, bytes(8))
    (note,) = opened(data + b"junk", tmp_path).notes
    assert (note.kind, note.offset) == (NoteKind.TRAILING_BYTES, len(data))


@pytest.mark.parametrize(
    ("entries", "length", "words"),
    [
        ({"a": entry(0, 4), "b": entry(6, 10)}, 10, 'no tensor has the 2 bytes before "b"'),
        ({"a": entry(0, 4), "b": entry(2, 6)}, 6, '"b" begins 2 bytes before the end'),
        ({"a": entry(0, 4), "b": entry(0, 4)}, 4, '"b" begins 4 bytes before the end'),
        ({"a": entry(2, 6)}, 6, '2 bytes before "a"'),
        ({"a": entry(0, 4, "U8", [5])}, 4, '"a" needs 5 bytes'),
        ({"a": entry(0, 4, "F32", [])}, 4, None),
        ({"a": entry(0, 2, "F4", [3])}, 2, '"a" has 12 bits'),
        ({"a": entry(4, 2, "U8", [0]), "b": entry(0, 4)}, 4, '"a" ends (at 2) before it begins (at 4)'),
        ({"a": entry(0, 0, "U8", [1 << 40, 1 << 40, 0])}, 0, '"a" has a shape of more bytes than can be counted'),
        ({"a": entry(0, 0, "U8", [0, 1 << 40, 1 << 40])}, 0, None),
    ],
)
def test_places_that_do_not_fit_are_named(entries, length, words, tmp_path):
    """Holes, overlaps, wrong lengths and overflow: the note names the tensor, and safetensors refuses the file."""
    from tests.formats.safetensors.forge import accepted

    data = file(entries, bytes(length))
    notes = opened(data, tmp_path).notes
    assert accepted(data) == (words is None) == (not notes)
    if words is not None:
        assert all(note.kind is NoteKind.OFFSETS_INVALID for note in notes)
        assert any(words in note.message for note in notes)


def test_an_entry_that_makes_no_sense_stays_in_the_tree_with_the_reason(tmp_path):
    """The other tensors are read; the unknown dtype is shown where the tensor should be."""
    checkpoint = opened(file({"a": entry(0, 4), "b": entry(4, 8, "f32", [1])}, bytes(8)), tmp_path)
    assert kinds(checkpoint) == [NoteKind.HEADER_INVALID] and '"f32"' in checkpoint.notes[0].message
    (_, a), (_, b) = checkpoint.tree.entries
    assert isinstance(a, Tensor) and isinstance(b, Elided) and "f32" in b.reason


def test_shapes_that_no_memory_holds_make_no_tensor(tmp_path):
    """A shape whose size cannot be counted would make others count it."""
    checkpoint = opened(file({"a": entry(0, 0, "U8", [1 << 60] * 100_000)}), tmp_path)
    assert checkpoint.tensors == ()
    assert set(kinds(checkpoint)) == {NoteKind.OFFSETS_INVALID, NoteKind.TENSOR_ODD}


def test_more_dimensions_than_torch_knows_are_noted(tmp_path):
    """safetensors takes any number of dimensions, torch 64."""
    fine, odd = file({"a": entry(0, 1, "U8", [1] * 64)}, b"0"), file({"a": entry(0, 1, "U8", [1] * 65)}, b"0")
    assert kinds(opened(fine, tmp_path)) == []
    assert kinds(opened(odd, tmp_path)) == [NoteKind.TENSOR_ODD]


def test_a_name_that_is_there_twice_is_noted_and_the_last_one_counts(tmp_path):
    """Rust takes the last entry of a name without a word."""
    one, two = (
        '"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}',
        '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}',
    )
    checkpoint = opened(raw("{" + one + "," + two + "}", bytes(4)), tmp_path)
    assert kinds(checkpoint) == [NoteKind.DUPLICATE_KEY]
    assert [tensor.dtype.safetensors for tensor in checkpoint.tensors] == ["F32"]


def test_metadata_that_is_not_text_is_named_and_the_rest_kept(tmp_path):
    """The notes name each entry; null for the whole is fine."""
    checkpoint = opened(file({"__metadata__": {"step": 3, "x": None, "format": "pt"}}), tmp_path)
    assert kinds(checkpoint) == [NoteKind.HEADER_INVALID] * 2 and checkpoint.metadata == {"format": "pt"}
    assert opened(file({"__metadata__": None, "a": entry(0, 1)}, b"x"), tmp_path).notes == ()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (raw('{"a":'), DamagedError),
        (raw(b'{"\xff":{}}'), DamagedError),
        (raw('{"a":NaN}'), DamagedError),
        (raw('{"a":{"dtype":"F32"'), DamagedError),
        (raw('{"\\ud800":{}}'), DamagedError),
        (raw('{"a":' + "[" * 100_000 + "]" * 100_000 + "}"), DamagedError),
        (raw('{"a":1' + "0" * 10_000 + "}"), DamagedError),
        (raw("{}\0"), DamagedError),
        ((1 << 40).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', DamagedError),
        ((1 << 20).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', TruncatedError),
    ],
)
def test_a_header_that_cannot_be_read_is_damage(data, error, tmp_path):
    """examine says so in a note of a container that is not readable; read raises."""
    container = examined(data, tmp_path)
    assert container.format == "safetensors" and not container.readable
    assert kinds(container) == [NoteKind.TRUNCATED if error is TruncatedError else NoteKind.HEADER_INVALID]
    with pytest.raises(error, match=r"model\.safetensors"):
        formats.open_checkpoint(container.path)


def test_a_million_faults_make_few_notes(tmp_path):
    """Beyond twenty of a kind they are counted."""
    checkpoint = opened(file({f"t{index}": entry(0, 0, "f32") for index in range(2000)}), tmp_path)
    assert len(checkpoint.notes) == 21 and "1,980 more" in checkpoint.notes[-1].message


def test_cutting_a_file_anywhere_gives_an_answer(tmp_path):
    """At every length the file is a truncated checkpoint or too short to be anything; nothing else is raised."""
    path = tmp_path / "small.safetensors"
    save_file({"a": torch.ones(3), "b": torch.zeros(2, dtype=torch.int8)}, path, metadata={"format": "pt"})
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with FileSource(path) as source:
            container = formats.examine(source)
            expected = [NoteKind.EMPTY] if not length else [NoteKind.TRUNCATED] if length > 8 else []
            assert kinds(container) == expected, length
            try:
                checkpoint = formats.read(source, container)
            except CkptDoctorError as error:
                assert error.message.endswith(".")
            else:
                assert kinds(checkpoint) == [NoteKind.TRUNCATED]


def test_flipping_any_byte_of_the_header_gives_an_answer(tmp_path):
    """What safetensors refuses is an error or a note; what it takes has no complaint about the header."""
    from tests.formats.safetensors.forge import accepted

    path = tmp_path / "small.safetensors"
    save_file({"a": torch.ones(3), "b": torch.zeros(2, dtype=torch.int8)}, path, metadata={"format": "pt"})
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    for index in range(end):
        for flip in (0x01, 0x20, 0x80, 0xFF):
            sick = data[:index] + bytes([data[index] ^ flip]) + data[index + 1 :]
            with FileSource(written(sick, tmp_path)) as source:
                container = formats.examine(source)
                complained = bool(container.notes) or not container.readable
                assert complained == (not accepted(sick)), (index, flip, container.notes)


def test_opening_leaves_the_collector_as_it_was(tmp_path):
    """The garbage collector is off while parsing only, also when parsing fails."""
    import gc

    examined(raw('{"a":'), tmp_path)
    assert gc.isenabled()


def test_what_is_read_loads_alike(tmp_path):
    """The values at our extents are those that safetensors loads."""
    path = tmp_path / "m.safetensors"
    save_file({"a": torch.randn(4, 5), "b": torch.arange(6)}, path)
    loaded, data = load_file(path), path.read_bytes()
    for tensor in formats.open_checkpoint(path).tensors:
        extent = tensor.storage.extent
        real = loaded[tensor.key]
        view = torch.frombuffer(bytearray(data[extent.offset : extent.offset + extent.length]), dtype=real.dtype)
        assert torch.equal(view.reshape(tensor.shape), real)
