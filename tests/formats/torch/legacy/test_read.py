from __future__ import annotations

import os
import pickle
import struct

import pytest
import torch

import ckptdoctor
from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource, NoteKind, at
from ckptdoctor.errors import DamagedError, TruncatedError
from tests.builders import tagged
from tests.formats.torch.legacy.support import legacy_bytes, read, save

MODEL = {"w": torch.arange(6.0).view(2, 3), "n": torch.tensor(7), "h": torch.ones(3, dtype=torch.float16)}


def kinds(checkpoint):
    return [note.kind for note in checkpoint.notes]


def values(path, storage):
    return path.read_bytes()[storage.extent.offset : storage.extent.offset + storage.extent.length]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_tensors_and_their_bytes_are_found(tmp_path, protocol):
    """Shape, dtype, strides and the place of every value are those that torch wrote, whatever the protocol."""
    path = tmp_path / "a.pt"
    path.write_bytes(legacy_bytes({"model": MODEL, "t": MODEL["w"].t(), "epoch": 3}, protocol))
    got = read(path)
    assert got.notes == ()
    assert got.format == "torch legacy"
    assert at(got.tree, ("epoch",)) == 3
    tensors = {tensor.key: tensor for tensor in got.tensors}
    for key, tensor in MODEL.items():
        assert tensors[key].shape == tuple(tensor.shape)
        assert tensors[key].dtype.name == str(tensor.dtype).removeprefix("torch.")
        assert values(path, tensors[key].storage) == tensor.numpy().tobytes()
    assert tensors["t"].storage is tensors["w"].storage
    assert tensors["t"].stride == (1, 3)
    assert got.state_dicts[1].path == ("model",)


def test_device_tags_are_read(tmp_path):
    """A storage's tag is its device and that of its tensors."""
    got = read(save({"a": tagged(torch.ones(2), "cuda:1"), "b": torch.ones(1)}, tmp_path / "a.pt"))
    assert [tensor.device for tensor in got.tensors] == ["cuda:1", "cpu"]


@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
def test_a_whole_module_with_its_source_is_an_object(tmp_path):
    """Legacy files wrap each module class in a persistent id with its source; it is shown by its class."""
    got = read(save(torch.nn.Sequential(torch.nn.Linear(2, 3)), tmp_path / "a.pt"))
    assert at(got.tree, ()).class_name == "torch.nn.modules.container.Sequential"
    assert [tensor.path[-1] for tensor in got.tensors] == ["weight", "bias"]
    assert got.state_dicts == ()


@pytest.mark.parametrize("cut", [1, 20, 700])
def test_a_cut_file_keeps_what_is_complete(tmp_path, cut):
    """A file that ends too early opens, says how much is missing, and still places its complete storages."""
    value = {"a": torch.ones(100), "b": torch.ones(100)}
    path = save(value, tmp_path / "a.pt")
    os.truncate(path, path.stat().st_size - cut)
    got = read(path)
    assert kinds(got) == [NoteKind.TRUNCATED]
    assert ("1 byte is missing" if cut == 1 else f"{cut} bytes are missing") in got.notes[0].message
    lengths = sorted(storage.extent.length if storage.extent else -1 for storage in got.storages)
    assert lengths == {1: [399, 400], 20: [380, 400], 700: [-1, 108]}[cut]


def test_every_cut_is_a_note_or_a_clear_error(tmp_path):
    """Cut at any of 200 places, the file is recognised as truncated, or not at all; nothing else is raised."""
    data = legacy_bytes({"a": torch.ones(40), "b": [1, "x"]})
    path = tmp_path / "a.pt"
    for size in range(1, len(data), max(1, len(data) // 200)):
        path.write_bytes(data[:size])
        with FileSource(path) as source:
            container = formats.examine(source)
            if container.format != "torch legacy":
                assert size < 24
            elif container.readable:
                assert kinds(formats.read(source, container)) == [NoteKind.TRUNCATED]
            else:
                assert kinds(container) == [NoteKind.TRUNCATED]
                with pytest.raises(TruncatedError, match="ends within the pickle"):
                    formats.read(source, container)


def test_every_flipped_byte_is_survived(tmp_path):
    """With any byte changed the file is read, or refused with DamagedError."""
    data = legacy_bytes({"a": torch.ones(3), "b": [1, "x"]})
    path = tmp_path / "a.pt"
    for place in range(0, len(data), 3):
        for flip in (1, 0x80):
            path.write_bytes(data[:place] + bytes((data[place] ^ flip,)) + data[place + 1 :])
            with FileSource(path) as source:
                container = formats.examine(source)
                if container.format != "torch legacy":
                    continue
                try:
                    formats.read(source, container)
                except DamagedError as error:
                    assert error.message.strip()


def patched(path, old, new):
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))
    return path


@pytest.mark.parametrize("count", [0, 4, 6, -1, 1 << 40, (1 << 63) - 1])
def test_a_count_that_lies_is_noted(tmp_path, count):
    """An element count that differs from the pickle's is told, and nothing of that size is read."""
    path = save({"a": torch.ones(5)}, tmp_path / "a.pt")
    got = read(patched(path, struct.pack("<q", 5), struct.pack("<q", count)))
    assert NoteKind.STORAGE_SIZE in kinds(got)
    assert f"should have 5 elements, but {count:,} follow" in got.notes[0].message


def parts(value):
    """Everything before the key list, the key list, everything after."""
    data = legacy_bytes(value)
    ends = [at for at in range(len(data)) if data[at : at + 2] == b"\x80\x02"]
    start = ends[4]
    keys = pickle.loads(data[start:])
    return data[:start], keys, data[start + len(pickle.dumps(keys, 2)) :]


@pytest.mark.parametrize(
    ("lie", "kind", "words"),
    [
        (lambda keys: [*keys, "123"], NoteKind.STORAGE_MISSING, "none that the pickle names"),
        (lambda keys: keys[:1], NoteKind.STORAGE_MISSING, "not in the list"),
        (lambda keys: [keys[0], *keys], NoteKind.STORAGE_SIZE, "listed twice"),
        (lambda keys: [None, *keys], NoteKind.STORAGE_MISSING, "none that the pickle names"),
        (lambda keys: [], NoteKind.STORAGE_MISSING, "not in the list"),
    ],
)
def test_a_key_list_that_lies_is_noted(tmp_path, lie, kind, words):
    """Keys too many, too few, twice or of a wrong kind are told; the rest is read."""
    before, keys, after = parts({"a": torch.ones(2), "b": torch.ones(3)})
    path = tmp_path / "a.pt"
    path.write_bytes(before + pickle.dumps(lie(keys), 2) + after)
    got = read(path)
    assert any(note.kind is kind and words in note.message for note in got.notes)


def test_a_key_list_that_is_no_list_is_refused(tmp_path):
    """A number where the keys should stand is damage."""
    before, _, after = parts({"a": torch.ones(2)})
    path = tmp_path / "a.pt"
    path.write_bytes(before + pickle.dumps(7, 2) + after)
    with pytest.raises(DamagedError, match="is not a list"):
        read(path)


def test_another_protocol_version_is_refused(tmp_path):
    """Only version 1001 was ever written."""
    path = patched(save({"a": 1}, tmp_path / "a.pt"), b"M\xe9\x03.", b"M\xea\x03.")
    with pytest.raises(DamagedError, match="not version 1001"):
        read(path)


def test_a_call_in_the_system_info_is_noted(tmp_path):
    """A class named in a pickle that should hold plain data is told: torch would run it."""
    data = legacy_bytes({"a": 1})
    start = data.index(b"\x80\x02}")
    end = data.index(b".", data.index(b"type_sizes")) + 1
    path = tmp_path / "a.pt"
    path.write_bytes(data[:start] + b"cos\nsystem\n(X\x02\x00\x00\x00idtR." + data[end:])
    got = read(path)
    assert kinds(got) == [NoteKind.PICKLE_HIDDEN_CALL]
    assert "system info names os.system" in got.notes[0].message


def test_bytes_behind_the_end_are_noted(tmp_path):
    """What follows the last storage is counted."""
    path = save({"a": torch.ones(2)}, tmp_path / "a.pt")
    with path.open("ab") as file:
        file.write(b"extra")
    got = read(path)
    assert kinds(got) == [NoteKind.TRAILING_BYTES]
    assert got.notes[0].offset == path.stat().st_size - 5


def test_a_view_of_a_storage_shifts_its_tensors(tmp_path):
    """A view (key, offset, size) of a storage, as old files hold them, adds to the offsets of its tensors."""
    tensor = torch.arange(10.0)
    data = legacy_bytes({"a": tensor[2:5]})
    key = str(tensor.untyped_storage()._cdata).encode()
    view = b"(X\x04\x00\x00\x00viewK\x03K\x07t"
    at_none = data.index(b"K\nN")
    path = tmp_path / "a.pt"
    path.write_bytes(data[: at_none + 2] + view + data[at_none + 3 :])
    got = read(path)
    assert (got.tensors[0].offset, got.tensors[0].storage.key) == (5, key.decode())
    assert torch.load(path, weights_only=True)["a"].tolist() == [5.0, 6.0, 7.0]


def viewing(view, tmp_path, value=None):
    """A file of ten numbers, whose one reference to them names this view of the storage."""
    data = legacy_bytes({"a": torch.arange(10.0)[:4] if value is None else value})
    at_none = data.index(b"K\nN")
    path = tmp_path / "a.pt"
    path.write_bytes(data[: at_none + 2] + view + data[at_none + 3 :])
    return path


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_a_storage_that_is_saved_as_a_view_is_the_view(tmp_path):
    """Its elements are those of the view, and not all of the storage that it belongs to."""
    path = viewing(b"(X\x04\x00\x00\x00viewK\x03K\x04t", tmp_path, torch.arange(10.0)._typed_storage())
    assert ckptdoctor.load(path)["a"].tolist() == list(torch.load(path, weights_only=True)["a"]) == [3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize("view", [b"(X\x04\x00\x00\x00viewK\x00K\x03t", b"(X\x04\x00\x00\x00viewK\x08K\x04t", b"K\x05"])
def test_a_view_that_does_not_fit_is_an_error(view, tmp_path):
    """A tensor beyond its view, a view beyond its storage, and one that is no view: torch refuses all of them."""
    path = viewing(view, tmp_path)
    assert kinds(read(path)) == [NoteKind.TENSOR_ODD]
    with pytest.raises((RuntimeError, TypeError)):
        torch.load(path, weights_only=True)


def test_two_views_with_one_key_are_an_error(tmp_path):
    """torch keeps the first view of each key, whatever the second one says."""
    values = torch.arange(10.0)
    data = legacy_bytes({"a": values[:4], "b": values[:4].clone()[:0].set_(values.untyped_storage(), 0, (4,), (1,))})
    key = b"X\x04\x00\x00\x00view"
    one, two = (b"(" + key + each + b"K\x04t" for each in (b"K\x01", b"K\x05"))
    data = data.replace(b"K\nN", b"K\n" + one, 1)
    at = data.index(b"K\nN") if b"K\nN" in data else -1
    path = tmp_path / "a.pt"
    path.write_bytes(data if at < 0 else data[: at + 2] + two + data[at + 3 :])
    assert torch.load(path, weights_only=True)["b"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert [note.kind for note in read(path).notes] == [NoteKind.TENSOR_ODD]


def test_only_the_pickles_and_the_counts_are_read(tmp_path):
    """A sparse file of 8 GB opens after reading little more than its first megabyte."""
    data = legacy_bytes({"a": torch.ones(1)})
    count = struct.pack("<q", 1)
    at_count = data.rindex(count)
    big = data[:at_count].replace(b"K\x01N", b"J\x00\x00\x00\x7fN", 1)
    assert len(big) == at_count + 3
    path = tmp_path / "a.pt"
    path.write_bytes(big + struct.pack("<q", 0x7F000000))
    os.truncate(path, len(big) + 8 + 0x7F000000 * 4)
    got = read(path)
    assert got.notes == ()
    assert got.tensors[0].storage.nbytes == 0x7F000000 * 4
    assert got.bytes_read < 2 << 20


def test_other_files_are_not_recognised(tmp_path):
    """A zip file, a plain pickle and the magic number in the wrong place are something else."""
    path = tmp_path / "a.pt"
    for data in (b"PK\x03\x04", pickle.dumps({"a": 1}, 2), b"x" + legacy_bytes(1), b"\x80\x02\x8a\x0a"):
        path.write_bytes(data)
        with FileSource(path) as source:
            assert formats.examine(source).format != "torch legacy"
