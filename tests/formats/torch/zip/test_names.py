"""Names in an archive: duplicates, case, folders, paths that lead elsewhere."""

import random
import struct

import pytest
import torch

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.errors import DamagedError, NotACheckpointError
from ckptdoctor.formats import open_checkpoint
from tests.formats.torch.zip.forge import Part, assembled, directory_of, loaded, noted, noticed, part, parts_of, saved


@pytest.mark.parametrize("count", range(2, 9))
@pytest.mark.parametrize("seed", range(3))
def test_duplicates(count, seed, tmp_path, parts):
    """Of several records of one name, the one that torch loads is found and named by number."""
    rng = random.Random(f"{count} {seed}")
    original = part(parts, "data/0")
    for value in range(1, count):
        parts.insert(rng.randrange(1, len(parts) + 1), Part(original.name, struct.pack("<6f", *[value + 100.0] * 6)))
    parts += [Part(f"archive/x{index}".encode(), b"x") for index in range(rng.randrange(9))]
    data = assembled(parts)
    directory = directory_of(data, tmp_path)
    record = directory.find("data/0")
    assert data[record.data_offset : record.end] == loaded(data, tmp_path)["w"].numpy().tobytes()
    number = [one.data for one in parts if one.name == original.name].index(data[record.data_offset : record.end]) + 1
    note = noted(directory, NoteKind.ZIP_AMBIGUOUS, f"{count} records are called archive/data/0")
    assert f"torch reads number {number}" in note.message
    assert not directory.repairable


@pytest.mark.parametrize("place", [0, 3, 8])
def test_second_pickle_in_another_case(place, tmp_path, parts):
    """Of data.pkl and Data.PKL the one that torch loads is found."""
    other = part(parts_of(saved({"evil": torch.ones(6)})), "data.pkl")
    parts.insert(place, Part(b"archive/Data.PKL", other.data))
    data = assembled(parts)
    directory = directory_of(data, tmp_path)
    record = directory.find("data.pkl")
    assert ("evil" in loaded(data, tmp_path)) == (data[record.data_offset : record.end] == other.data)
    note = noted(directory, NoteKind.ZIP_AMBIGUOUS, "differ only in the case of their names")
    assert "archive/Data.PKL, archive/data.pkl" in note.message


def test_further_pickle(tmp_path, parts):
    """A pickle that torch.load never reads is pointed out."""
    directory = noticed(assembled([*parts, Part(b"archive/evil.pkl", b"N.")]), tmp_path)
    noted(directory, NoteKind.ZIP_UNUSUAL, "is a further pickle", "archive/evil.pkl")


@pytest.mark.parametrize("name", [b"archive/../../etc/passwd", b"/etc/passwd"])
def test_traversal(name, tmp_path, parts):
    """A name that leads out of the folder is pointed out; torch loads the file all the same."""
    data = assembled([*parts, Part(name, b"x")])
    noted(noticed(data, tmp_path), NoteKind.ZIP_UNUSUAL, "leads out of the folder", name.decode())


def test_mixed_folders(tmp_path, parts):
    """Records of another folder are pointed out, which make torch refuse the file."""
    data = assembled([*parts, Part(b"other/x", b"x")])
    noted(noticed(data, tmp_path), NoteKind.ZIP_UNUSUAL, "is outside the folder archive", "other/x")
    with pytest.raises(RuntimeError, match="not in a subdirectory"):
        loaded(data, tmp_path)


def test_first_record_in_another_folder(tmp_path, parts):
    """A first record outside the folder is pointed out, because torch takes the archive's name from it."""
    data = assembled([Part(b"__MACOSX/x", b"x"), *parts])
    directory = directory_of(data, tmp_path)
    assert directory.prefix == "archive"
    noted(directory, NoteKind.ZIP_UNUSUAL, "the first record is __MACOSX/x")
    with pytest.raises(RuntimeError):
        loaded(data, tmp_path)


def test_backslash(tmp_path, parts):
    """A backslash in a name is pointed out."""
    part(parts, "data/0").name = b"archive\\data\\0"
    directory = directory_of(assembled(parts), tmp_path)
    assert directory.find("data/0") is None
    noted(directory, NoteKind.ZIP_UNUSUAL, "backslash")


def test_zero_byte(tmp_path, parts):
    """A zero byte in a name makes the archive ambiguous: zipfile cuts the name there, torch does not."""
    parts.append(Part(b"archive/data/7\0x", b"x"))
    noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_AMBIGUOUS, "zero byte")


def test_long_name(tmp_path, parts):
    """A name longer than torch's buffer is pointed out, and shown short."""
    parts.append(Part(b"archive/" + b"v" * 600, b"x"))
    note = noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_UNUSUAL, "a name of 608 characters")
    assert len(note.member) < 150


def test_name_that_is_not_utf_8(tmp_path, parts):
    """A name of wild bytes survives reading and is shown escaped."""
    parts.append(Part(b"other/\xff\xfe", b"x"))
    directory = noticed(assembled(parts), tmp_path)
    assert noted(directory, NoteKind.ZIP_UNUSUAL, "is outside").member.isprintable()


def test_torchscript_and_other_archives_are_not_ours(tmp_path, parts):
    """A constants.pkl makes the file TorchScript; without a data.pkl in a folder it is some other archive."""
    with pytest.raises(NotACheckpointError, match="TorchScript"):
        directory_of(assembled([*parts, Part(b"archive/constants.pkl", b"N.")]), tmp_path)
    for name in (b"data.pkl", b"outer/archive/data.pkl", b"archive/model.pth"):
        with pytest.raises(NotACheckpointError):
            directory_of(assembled([Part(name, b"N.")]), tmp_path)
    with pytest.raises(NotACheckpointError):
        directory_of(assembled([]), tmp_path)


def test_pickle_that_is_not_listed(tmp_path, parts):
    """A file that begins with a data.pkl which its directory leaves out is damaged, not something else."""
    part(parts, "data.pkl").listed = False
    with pytest.raises(DamagedError, match="does not list the data"):
        directory_of(assembled(parts), tmp_path)


def test_a_storage_key_with_half_a_surrogate_pair(tmp_path, parts):
    """No record is called that: the storage is missing, as for torch, and nothing is raised."""
    pickle = part(parts, "data.pkl")
    pickle.data = pickle.data.replace(b"X\1\0\0\0000", b"X\3\0\0\0\xed\xa0\x80")
    assert b"\xed\xa0\x80" in pickle.data
    path = tmp_path / "odd.pt"
    path.write_bytes(assembled(parts))
    checkpoint = open_checkpoint(path)
    assert [storage.key for storage in checkpoint.storages if storage.extent is None] == ["\ud800"]
