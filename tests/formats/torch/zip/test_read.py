"""Recognising and reading torch archives: the directory and the pickle, never a value."""

import random
import zlib

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource, NoteKind
from ckptdoctor.errors import CkptDoctorError, DamagedError, HostileError
from tests.formats.torch.zip import forge
from tests.formats.torch.zip.forge import Part, assembled, part, parts_of, saved

CONTENTS = {**forge.CONTENTS, "epoch": 7}


@pytest.fixture
def examined(tmp_path):
    def examine(data: bytes):
        path = tmp_path / "file.bin"
        path.write_bytes(data)
        with FileSource(path) as source:
            return formats.examine(source)

    return examine


@pytest.fixture
def checkpoint_of(tmp_path):
    def read(data: bytes):
        path = tmp_path / "file.bin"
        path.write_bytes(data)
        with FileSource(path) as source:
            return formats.read(source, formats.examine(source))

    return read


def kinds(notes):
    return [note.kind for note in notes]


class TestExamine:
    def test_torch_archive(self, examined):
        """What torch.save writes is a readable torch zip, whatever the file is called."""
        data = saved(CONTENTS)
        container = examined(data)
        assert (container.format, container.readable, container.notes) == ("torch zip", True, ())
        assert container.size == container.identity.size == len(data)

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"PK",
            b"PK\3\4 and then text " * 9,
            b"\x80\2}q\0." * 20,
            saved(CONTENTS, _use_new_zipfile_serialization=False),
            saved(CONTENTS, _use_new_zipfile_serialization=False) + saved(CONTENTS),
            assembled([Part(b"model/weights.bin", b"x" * 100)]),
            assembled([*parts_of(saved(CONTENTS)), Part(b"archive/constants.pkl", b"N.")]),
            saved(CONTENTS) + saved([1]),
        ],
    )
    def test_something_else(self, data, examined):
        """Other files, other archives, TorchScript and runs of archives are left to others."""
        assert examined(data).format != "torch zip"

    def test_archive_behind_other_bytes(self, examined, parts):
        """An archive that does not begin the file is recognised by its end, and torch is said to refuse it."""
        container = examined(assembled(parts, before=b"#!/bin/sh\n", shift=True))
        assert container.readable
        assert kinds(container.notes) == [NoteKind.ZIP_UNUSUAL]
        assert "rejects" in container.notes[0].message

    def test_notes_of_the_directory(self, examined, parts):
        """What is odd about the directory is in the container's notes."""
        part(parts, "data/0").method = 8
        assert kinds(examined(assembled(parts)).notes) == [NoteKind.ZIP_UNUSUAL]

    def test_damaged_directory(self, examined, parts):
        """A directory that is not where it should be makes a container that cannot be read, with the reason."""
        data = assembled(parts, offset=5, size=70)
        container = examined(data)
        assert (container.format, container.readable) == ("torch zip", False)
        assert kinds(container.notes) == [NoteKind.ZIP_DAMAGED]
        assert container.guidance

    def test_hostile_directory(self, examined, parts):
        """So does one that claims to be larger than any."""
        container = examined(assembled(parts, size=0x7FFFFFFF))
        assert not container.readable
        assert "more than any" in container.notes[0].message


class TestRead:
    def test_contents(self, checkpoint_of, tmp_path):
        """Tensors, storages and other contents are read, with where their bytes lie and their checksums."""
        data = saved(CONTENTS)
        checkpoint = checkpoint_of(data)
        assert checkpoint.format == "torch zip"
        assert [tensor.path for tensor in checkpoint.tensors] == [("w",), ("v",), ("empty",)]
        storage = checkpoint.tensors[0].storage
        assert data[storage.extent.offset :][: storage.extent.length] == CONTENTS["w"].numpy().tobytes()
        assert storage.crc32 == zlib.crc32(CONTENTS["w"].numpy().tobytes())
        assert storage.extent.file == str(tmp_path / "file.bin")
        assert dict(checkpoint.tree.entries)["epoch"] == 7
        assert checkpoint.notes == ()
        assert checkpoint.container.notes == ()
        assert checkpoint.identity.size == len(data)

    def test_reads_headers_only(self, tmp_path):
        """However large the values, only headers and the pickle are read."""
        path = tmp_path / "big.pt"
        with torch.serialization.skip_data():
            torch.save({f"key{index}": torch.UntypedStorage(1 << 30) for index in range(100)}, path)
        with FileSource(path) as source:
            checkpoint = formats.read(source, formats.examine(source))
        assert checkpoint.size > 100 << 30
        assert checkpoint.bytes_read == source.bytes_read < 200_000
        assert len(checkpoint.storages) == 100

    def test_checksum_that_was_not_computed(self, checkpoint_of):
        """Without checksums, storages carry none."""
        torch.serialization.set_crc32_options(False)
        try:
            data = saved(CONTENTS)
        finally:
            torch.serialization.set_crc32_options(True)
        checkpoint = checkpoint_of(data)
        assert [storage.crc32 for storage in checkpoint.storages if storage.nbytes] == [None, None]
        assert kinds(checkpoint.notes) == [NoteKind.CRC_NOT_COMPUTED]

    def test_missing_storage(self, checkpoint_of, parts):
        """A storage without a record has no extent, and a note."""
        parts.remove(part(parts, "data/0"))
        checkpoint = checkpoint_of(assembled(parts))
        assert checkpoint.tensors[0].storage.extent is None
        assert kinds(checkpoint.notes) == [NoteKind.STORAGE_MISSING]
        assert checkpoint.notes[0].member == "archive/data/0"

    @pytest.mark.parametrize("size", [0, 23, 25])
    def test_storage_of_another_size(self, size, checkpoint_of, parts):
        """A record that is shorter or longer than its storage is noted with both lengths."""
        part(parts, "data/0").data = bytes(size)
        checkpoint = checkpoint_of(assembled(parts))
        assert checkpoint.tensors[0].storage.extent.length == size
        assert kinds(checkpoint.notes) == [NoteKind.STORAGE_SIZE]
        assert "24 bytes" in checkpoint.notes[0].message

    def test_deflated_storage_and_pickle(self, checkpoint_of, parts):
        """A deflated pickle is inflated; a deflated storage is marked, its extent covering what lies in the file."""
        part(parts, "data/1").method = part(parts, "data.pkl").method = 8
        checkpoint = checkpoint_of(assembled(parts))
        assert [storage.compressed for storage in checkpoint.storages] == [False, True, False]
        assert checkpoint.tensors[1].storage.extent.length != 24

    def test_changed_pickle(self, checkpoint_of, parts):
        """A pickle that does not match its checksum is noted, and read as torch would read it."""
        one = part(parts, "data.pkl")
        one.central = {"crc": 1}
        one.footer = None
        checkpoint = checkpoint_of(assembled(parts))
        assert NoteKind.CRC_MISMATCH in kinds(checkpoint.notes)
        assert len(checkpoint.tensors) == 3

    def test_bytes_behind_the_pickle(self, checkpoint_of, parts):
        """Bytes behind the end of the pickle are noted."""
        part(parts, "data.pkl").data += b"cos\nsystem\n(S'true'\ntR."
        checkpoint = checkpoint_of(assembled(parts))
        assert kinds(checkpoint.notes) == [NoteKind.PICKLE_HIDDEN_CALL]

    def test_damaged_pickle(self, checkpoint_of, parts):
        """A pickle that breaks off names its record and the byte."""
        one = part(parts, "data.pkl")
        one.data = one.data[:40]
        with pytest.raises(DamagedError, match=r"archive/data\.pkl") as caught:
            checkpoint_of(assembled(parts))
        assert caught.value.member == "archive/data.pkl"
        assert caught.value.offset is not None

    def test_encrypted_pickle(self, checkpoint_of, parts):
        """An encrypted pickle cannot be read."""
        part(parts, "data.pkl").central = {"flags": 0x0809}
        with pytest.raises(DamagedError, match="encrypted"):
            checkpoint_of(assembled(parts))

    def test_pickle_bomb(self, checkpoint_of, parts):
        """A pickle that would inflate beyond all bounds is not inflated."""
        one = part(parts, "data.pkl")
        one.method, one.data = 8, bytes(1 << 20)
        one.central = one.local = {"size": 1 << 31}
        with pytest.raises(HostileError):
            checkpoint_of(assembled(parts))

    def test_big_endian(self, checkpoint_of, parts):
        """Big-endian values are noted; an unknown byte order is refused by torch, and said to be."""
        part(parts, "/byteorder").data = b"big"
        assert kinds(checkpoint_of(assembled(parts)).notes) == [NoteKind.BIG_ENDIAN]
        part(parts, "/byteorder").data = b"middle"
        assert kinds(checkpoint_of(assembled(parts)).notes) == [NoteKind.ZIP_UNUSUAL]

    @pytest.mark.parametrize("version", [b"0\n", b"11\n", b"x", b"", b"9" * 5000, None])
    def test_version_that_torch_refuses(self, version, checkpoint_of, parts, tmp_path):
        """A version that torch does not know, or none at all, is noted; torch refuses the file."""
        one = part(parts, "/version")
        parts.remove(one)
        if version is not None:
            parts.append(Part(one.name, version))
        data = assembled(parts)
        assert kinds(checkpoint_of(data).notes) == [NoteKind.ZIP_UNUSUAL]
        with pytest.raises((RuntimeError, IndexError)):
            torch.load(tmp_path / "file.bin")

    def test_huge_serialization_id(self, checkpoint_of, parts):
        """A serialization id that would inflate to a gigabyte is never inflated."""
        one = part(parts, "serialization_id")
        one.method, one.data = 8, bytes(32 << 20)
        checkpoint = checkpoint_of(assembled(parts))
        assert checkpoint.bytes_read < 200_000
        assert len(checkpoint.tensors) == 3

    def test_wild_changes_never_escape(self, tmp_path):
        """Whatever bytes change and wherever the file is cut: contents with notes, or one of our own errors."""
        rng = random.Random(11)
        sound = saved(CONTENTS)
        path = tmp_path / "wild.pt"
        for _ in range(600):
            data = bytearray(sound)
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.3 else data)
            with FileSource(path) as source:
                container = formats.examine(source)
                if container.format != "torch zip" or not container.readable:
                    continue
                try:
                    formats.read(source, container)
                except CkptDoctorError as error:
                    assert error.message
                    assert "\n" not in error.message
