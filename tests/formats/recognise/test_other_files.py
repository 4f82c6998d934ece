"""Everything that is no readable checkpoint is named in one sentence, and is never called damaged."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import sqlite3
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource, NoteKind
from ckptdoctor.errors import CkptDoctorError, NotACheckpointError

WEIGHTS = {"w": torch.ones(3)}


def torch_bytes(legacy: bool = False) -> bytes:
    buffer = io.BytesIO()
    torch.save(WEIGHTS, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def zipped(**members: bytes) -> bytes:
    """A zip archive; in the names, two underscores stand for a slash and one for a dot."""
    return packed({name.replace("__", "/").replace("_", "."): data for name, data in members.items()})


def packed(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 700
            archive.addfile(member, io.BytesIO(bytes(700)))
    return buffer.getvalue()


def package_bytes() -> bytes:
    buffer = io.BytesIO()
    with torch.package.PackageExporter(buffer) as exporter:
        exporter.save_text("weights", "note.txt", "hello")
    return buffer.getvalue()


ONNX = b"\x08\x08\x12\x07pytorch\x1a\x062.13.0:\x90\x01" + b"\n\x1e\n\x01x\n\x01w\x12\x01y" * 5
SAVED_MODEL = b"\x08\x01\x12\xd5\xae\x03\n\xc2\xa1\x03\n\x19saved"
FLAX = b"\x81\xa6params\x82\xa4bias\xc7\x10\x01" + bytes(40)
OLD_MAGIC = {"hdf5 behind a block": bytes([1]) * 512 + b"\x89HDF\r\n\x1a\n" + bytes(100)}

# what it is called → bytes, and words of the guidance
KINDS: dict[str, list[tuple[bytes, str]]] = {
    "gzip file": [
        (gzip.compress(torch_bytes()), "a zip archive, as torch.save writes it"),
        (gzip.compress(torch_bytes(legacy=True)), "a torch file from before 1.6"),
        (gzip.compress(tarred("model.pth")), "a tar archive"),
        (b"\x1f\x8b\x08\x08" + bytes(6) + b"model.pth\0" + b"\xff" * 40, '"model.pth"'),
    ],
    "bzip2 file": [(bz2.compress(torch_bytes()), "bunzip2")],
    "xz file": [(lzma.compress(torch_bytes()), "a zip archive"), (lzma.compress(os.urandom(90_000)), "unxz")],
    "zstd file": [(b"\x28\xb5\x2f\xfd\x04\x58" + bytes(20), "zstd -d")],
    "7z archive": [(b"7z\xbc\xaf\x27\x1c\x00\x04" + bytes(30), "7z x")],
    "RAR archive": [(b"Rar!\x1a\x07\x01\x00" + bytes(30), "unrar x")],
    "lz4 file": [(b"\x04\x22\x4d\x18" + bytes(30), "lz4 -d")],
    "zip archive": [
        (zipped(model_pth=torch_bytes(), readme_txt=b"hi"), 'It holds "model.pth": unpack it (unzip '),
        (zipped(run__a_ckpt=b"1", run__b_pt=b"2", run__c_bin=b"3", run__d_pt=b"4"), "and 1 more"),
        (packed({"__MACOSX/._model.pth": b"1", "notes.txt": b"2"}), "It does not hold a checkpoint, only"),
        (zipped(), "It does not hold a checkpoint"),
        (zipped(data_pkl=b"1", version=b"3\n"), "pack the folder"),
        (zipped(x__archive__data_pkl=b"1", x__archive__version=b"3\n"), "pack the folder"),
        (zipped(notes_txt=b"1" * 500)[:80], "Download it again"),
    ],
    "Keras archive": [(zipped(config_json=b"{}", metadata_json=b"{}", model_weights_h5=b"x"), "keras")],
    "TorchServe archive": [(zipped(**{"MAR-INF__MANIFEST_json": b"{}", "m_pt": b"1"}), "TorchServe")],
    "torch.package archive": [(package_bytes(), "PackageImporter")],
    "TorchScript archive": [(zipped(m__constants_pkl=b"1", m__model_json=b"{}"), "torch.jit.load")],
    "torch.export program": [
        (packed({"m/archive_format": b"pt2", "m/data/aotinductor/x.so": b"1"}), "no list of weights")
    ],
    "tar archive": [(tarred("run/model.pth", "log"), '"run/model.pth"'), (tarred("log"), "does not hold a checkpoint")],
    "HDF5 file": [(b"\x89HDF\r\n\x1a\n" + bytes(100), "h5py"), (OLD_MAGIC["hdf5 behind a block"], "h5py")],
    "GGUF file": [(b"GGUF\x03\x00\x00\x00" + bytes(50), "llama.cpp")],
    "GGML file": [(b"lmgg" + bytes(50), "llama.cpp"), (b"tjgg\x03" + bytes(50), "llama.cpp")],
    "ONNX model": [(ONNX, "onnx.load"), (b"\x08\x0a\x3a\xff\xff\x03" + bytes(50), "onnx.load")],
    "TensorFlow SavedModel": [(SAVED_MODEL + bytes(60), "tf.saved_model.load")],
    "TensorFlow checkpoint": [(bytes([7]) * 80 + (0xDB4775248B80FB57).to_bytes(8, "little"), "load_checkpoint")],
    "TensorFlow Lite model": [(b"\x1c\x00\x00\x00TFL3" + bytes(50), "Interpreter")],
    "MessagePack file": [(FLAX, "flax"), (b"\xde\x00\x10\xa3abc" + bytes(50), "flax")],
    "ExecuTorch program": [(b"\x38\x00\x00\x00ET12" + bytes(50), "ExecuTorch")],
    "Torch7 file": [(struct.pack("<iii", 4, 1, 3) + b"V 1" + bytes(50), "torchfile")],
    "PDF document": [(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3", "wrong file")],
    "PNG image": [(b"\x89PNG\r\n\x1a\n" + bytes(30), "picture")],
    "JPEG image": [(b"\xff\xd8\xff\xe0" + bytes(30), "picture")],
    "Hugging Face shard index": [(json.dumps({"weight_map": {"a": "x.safetensors"}}).encode(), "shards")],
    "JSON file": [
        (b'{"model_type": "llama", "architectures": ["x"]}', "configuration"),
        (b"[1, 2]", "not a checkpoint"),
    ],
    "XML document": [(b'<?xml version="1.0"?><mxfile><x/></mxfile>', "not a checkpoint")],
    "text file": [
        (b"import torch\n\n\nclass Net(torch.nn.Module):\n    pass\n\n\nprint(Net)\n", '"import torch"'),
        ("name: résumé\nlr: 0.1\nepochs: 3\nbatch: 8\n".encode(), '"name: résumé"'),
        (("word\n" * 9000).encode("utf-16"), '"word"'),
    ],
}
CASES = [(name, data, words) for name, rows in KINDS.items() for data, words in rows]


def examined(data: bytes, folder: Path, name: str = "thing"):
    path = folder / name
    path.unlink(missing_ok=True)  # a file that is written over waits for the disk
    path.write_bytes(data)
    with FileSource(path) as source:
        return formats.examine(source)


@pytest.mark.parametrize(("name", "data", "words"), CASES, ids=[f"{name}-{i}" for i, (name, _, _) in enumerate(CASES)])
def test_other_things_are_named_with_what_opens_them(name, data, words, tmp_path):
    """The format says what it is, the guidance what to do; there are no notes of damage, and reading says the same."""
    container = examined(data, tmp_path)
    assert (container.format, container.readable, container.notes) == (name, False, ())
    assert words in container.guidance and container.guidance.endswith(".")
    with FileSource(container.path) as source, pytest.raises(NotACheckpointError) as caught:
        formats.read(source, container)
    assert container.format in caught.value.message and container.guidance in caught.value.message


@pytest.mark.parametrize(
    ("name", "data"), [row[:2] for row in CASES], ids=[f"{row[0]}-{i}" for i, row in enumerate(CASES)]
)
def test_the_first_bytes_alone_are_met_with_one_sentence(name, data, tmp_path):
    """However short a file is cut, it is named or said to be too short: nothing takes for granted what is not there."""
    for length in (*range(min(len(data), 20)), *range(20, min(len(data), 600), 37)):
        container = examined(data[:length], tmp_path)
        with FileSource(container.path) as source, pytest.raises(CkptDoctorError) as caught:
            formats.read(source, container)
        assert caught.value.message


def test_an_elf_file_and_a_database_are_named(tmp_path):
    """The running Python itself, and a database that sqlite3 wrote."""
    with FileSource(Path(sys.executable).resolve()) as source:
        assert formats.examine(source).format in ("ELF program", "Mach-O program")
    database = sqlite3.connect(tmp_path / "db")
    database.execute("create table t (x)")
    database.commit()
    database.close()
    with FileSource(tmp_path / "db") as source:
        assert formats.examine(source).format == "SQLite database"


@pytest.mark.filterwarnings("ignore")
def test_a_distributed_checkpoint_and_its_parts_are_named(tmp_path):
    """What torch.distributed.checkpoint.save writes: the folder, its index, and its shard when it holds several."""
    import torch.distributed.checkpoint as dcp

    dcp.save({"a": torch.ones(3), "b": torch.zeros(2), "step": 3}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    folder = formats.examine_directory(tmp_path / "dcp")
    assert (folder.format, folder.readable) == ("torch distributed checkpoint", True)
    with FileSource(tmp_path / "dcp" / ".metadata") as source:
        assert formats.examine(source).format == "index of a torch distributed checkpoint"
    with FileSource(tmp_path / "dcp" / "__0_0.distcp") as source:
        assert formats.examine(source).format == "torch distributed checkpoint shard"


POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 307200123\n"
)
S3_ERROR = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>NoSuchKey</Code>'
    b"<Message>The specified key does not exist.</Message><Key>m.pt</Key></Error>"
)
SCRIPT_PAGE = (
    b"<!-- x --><html><head><script>" + b"var a = 1;\n" * 800 + b"</script><title>Sign in\n to X</title></head>"
)


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors", "model"])
@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", NoteKind.EMPTY, ("empty",)),
        (POINTER, NoteKind.LFS_POINTER, ("307,200,123 bytes", "4d7a214614ab2935c943f9e0ff69d22e")),
        (b"version https://git-lfs.github.com/spec/v1\nsize x\n", NoteKind.LFS_POINTER, ("LFS pointer",)),
        (b"<!DOCTYPE html><title>Google Drive - Quota exceeded</title>", NoteKind.HTML_PAGE, ("Quota exceeded",)),
        (b"\xef\xbb\xbf\n <HTML><head></head>", NoteKind.HTML_PAGE, ("without a title",)),
        (SCRIPT_PAGE, NoteKind.HTML_PAGE, ('"Sign in to X"',)),
        (b'<?xml version="1.0"?>\n<!DOCTYPE html><html><title>404</title>', NoteKind.HTML_PAGE, ('"404"',)),
        (b'{"error": "Repository not found"}', NoteKind.TEXT_BODY, ("Repository not found",)),
        (b'{"error": {"code": 403, "message": "Denied"}}', NoteKind.TEXT_BODY, ("Denied",)),
        (b'{"errors": [{"detail": "expired"}]}', NoteKind.TEXT_BODY, ("expired",)),
        (S3_ERROR, NoteKind.TEXT_BODY, ("NoSuchKey: The specified key does not exist.",)),
        (b"Entry not found", NoteKind.TEXT_BODY, ("Entry not found",)),
        (b"Invalid username or password.", NoteKind.TEXT_BODY, ("Invalid username",)),
        (bytes(10_000), NoteKind.ZERO_FILLED, ("all 10,000 bytes",)),
        (bytes(3), NoteKind.ZERO_FILLED, ("all 3 bytes",)),
    ],
)
def test_everyday_damage_gets_one_note(data, kind, words, name, tmp_path):
    """What stands in the place of a checkpoint is told by its bytes, whatever the file is called."""
    container = examined(data, tmp_path, name)
    assert [note.kind for note in container.notes] == [kind] and not container.readable
    assert all(word in container.notes[0].message for word in words)
    with pytest.raises(NotACheckpointError):
        formats.open_checkpoint(container.path)


def test_short_text_counts_as_an_answer_only_where_a_checkpoint_should_be(tmp_path):
    """The same words are a text file when they are called one."""
    for name, noted in [("model.pth", True), ("notes.txt", False), ("todo", False), ("error.json", False)]:
        container = examined(b"see you tomorrow", tmp_path, name)
        assert bool(container.notes) == noted and container.format == "text file"
    assert examined(b'{"error": "not found"}', tmp_path, "log.json").notes == ()
    assert examined(b"error: not found", tmp_path, "check.py").notes == ()


def test_a_sparse_file_of_a_terabyte_of_zeros_is_told_without_reading_it(tmp_path):
    """The file system says that nothing was ever written."""
    path = tmp_path / "zeros.pt"
    path.touch()
    os.truncate(path, 1 << 40)
    with FileSource(path) as source:
        container = formats.examine(source)
        assert [note.kind for note in container.notes] == [NoteKind.ZERO_FILLED]
        assert source.bytes_read < 1 << 20


def test_zeros_with_something_among_them_are_not_called_zero(tmp_path):
    """One byte in a hole of a gigabyte is found."""
    path = tmp_path / "nearly.pt"
    path.touch()
    os.truncate(path, 1 << 30)
    with open(path, "r+b") as file:
        file.seek(700_000_001)
        file.write(b"\x01")
    with FileSource(path) as source:
        container = formats.examine(source)
    assert container.notes == () and container.format == "" and "begins with zero bytes" in container.guidance


def test_bytes_that_are_nothing_known_are_said_to_be_that(tmp_path):
    """Random bytes have no format; the guidance shows the first of them."""
    random_ = random.Random(3)
    unknown = 0
    for size in [1, 2, 8, 9, 15, 16, 40, 5000] * 40:
        container = examined(random_.randbytes(size), tmp_path)
        unknown += not container.format
        assert container.guidance.endswith(".") and not container.readable
    assert unknown > 250


@pytest.mark.parametrize("data", ["\f", "\ufeff\f\n", "\x85\x85", "\u2028"])
def test_lines_without_a_word_are_no_text(data, tmp_path):
    """Whatever Unicode takes for white space says nothing, so that no line of it can be shown."""
    container = examined(data.encode(), tmp_path, "a.pt")
    assert not container.format and not container.readable


@pytest.mark.parametrize(("name", "suffix", "fitting"), [("GGUF file", ".pt", ".gguf"), ("HDF5 file", ".bin", ".h5")])
def test_a_foreign_format_named_for_torch_is_noted(name, suffix, fitting, tmp_path):
    """The note says which suffix fits."""
    data = KINDS[name][0][0]
    (note,) = examined(data, tmp_path, f"model{suffix}").notes
    assert note.kind is NoteKind.WRONG_SUFFIX and note.message.endswith(f"fits {fitting}")


def test_cutting_or_flipping_anything_never_raises_anything_else(tmp_path):
    """Every kind, cut at many places and with bytes changed, gets an answer, and from read a known error."""
    random_ = random.Random(5)
    samples = [data for _, data, _ in CASES] + [torch_bytes(), POINTER, S3_ERROR]
    for data in samples:
        for _ in range(12):
            sick = bytearray(data[: random_.randrange(len(data) + 1)])
            for _ in range(random_.randrange(4)):
                if sick:
                    sick[random_.randrange(min(len(sick), 600))] = random_.randrange(256)
            path = tmp_path / "sick.pt"
            path.write_bytes(sick)
            with FileSource(path) as source:
                container = formats.examine(source)
                try:
                    formats.read(source, container)
                except CkptDoctorError as error:
                    assert error.message
