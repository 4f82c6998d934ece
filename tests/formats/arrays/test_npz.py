"""Archives of arrays, as numpy.savez and numpy.savez_compressed write them."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

import ckptdoctor
from ckptdoctor.checkpoint import NoteKind, Opaque
from ckptdoctor.edits import Drop
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats import open_checkpoint, opened, read, write
from tests.formats.arrays.arrays import odd, plain
from tests.formats.comparing import assert_same
from tests.formats.mangling import PLACES, endure

SAVERS = {"stored": np.savez, "deflated": np.savez_compressed}


@pytest.fixture(params=SAVERS)
def save(request, tmp_path):
    def saved(**arrays):
        SAVERS[request.param](tmp_path / "a.npz", **arrays)
        return tmp_path / "a.npz"

    return saved


def test_every_array_is_a_tensor_under_its_name(save):
    """Types, shapes, order and values are those that numpy.load gives, and the whole is a state dict."""
    path = save(**plain())
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "NumPy archive" and not checkpoint.notes
    assert [each.path for each in checkpoint.state_dicts] == [()]
    with np.load(path) as theirs:
        assert_same(ckptdoctor.load(path), dict(theirs))


def test_arrays_without_a_type_of_torch_are_shown_and_said_not_to_be_read(save):
    """The others are tensors all the same."""
    checkpoint = open_checkpoint(save(**odd()))
    assert [tensor.key for tensor in checkpoint.tensors] == ["weights"]
    assert sum(isinstance(value, Opaque) for _, value in checkpoint.tree.entries) == 4
    assert {note.kind for note in checkpoint.notes} == {NoteKind.NOT_EXAMINED}
    assert any("Python objects" in note.message and "objects" in note.message for note in checkpoint.notes)


def test_checksums_hold_for_what_extents_name(save):
    """A deep examination finds nothing in a whole file, and names the array in which a byte has changed."""
    path = save(w=np.arange(100_000, dtype="f4"), v=np.ones(3))
    whole = ckptdoctor.check(path, deep=True, select=["F"])
    assert whole.findings == ()
    assert not [each.what for each in whole.skipped if "checksum" in each.what]
    extent = whole.checkpoint.storages[0].extent
    data = bytearray(path.read_bytes())
    data[extent.offset + extent.length // 2] ^= 1
    path.write_bytes(data)
    (finding,) = ckptdoctor.check(path, deep=True, select=["F"]).findings
    assert (finding.code, finding.keys) == ("F009", (("w",),))


def test_big_endian_arrays_are_tensors_only_among_themselves(save):
    """One note for all; beside little-endian ones they are left out, and named."""
    path = save(a=np.arange(4, dtype=">i4"), b=np.ones(3, ">f8"), c=np.ones(3, "u1"), d=np.array([1 + 2j], ">c16"))
    assert [note.kind for note in open_checkpoint(path).notes] == [NoteKind.BIG_ENDIAN]
    with np.load(path) as theirs:
        assert_same(ckptdoctor.load(path), dict(theirs))
    mixed = open_checkpoint(save(a=np.arange(4, dtype=">i4"), b=np.ones(3)))
    assert [tensor.key for tensor in mixed.tensors] == ["b"]
    assert [(note.kind, note.message.endswith(": a")) for note in mixed.notes] == [(NoteKind.NOT_EXAMINED, True)]


def test_the_last_of_two_arrays_with_one_name_counts_as_for_zipfile(tmp_path):
    """And a note says that readers differ."""
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for value in (1, 2):
            buffer = io.BytesIO()
            np.save(buffer, np.full(3, value))
            archive.writestr("w.npy", buffer.getvalue())
    assert NoteKind.ZIP_AMBIGUOUS in {note.kind for note in open_checkpoint(tmp_path / "a.npz").notes}
    assert ckptdoctor.load(tmp_path / "a.npz")["w"].tolist() == [2, 2, 2]


def test_a_record_that_is_no_array_is_a_note(tmp_path):
    """The arrays beside it are read."""
    np.savez(tmp_path / "a.npz", w=np.ones(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("x.npy", b"this is no array at all")
    checkpoint = open_checkpoint(tmp_path / "a.npz")
    assert [tensor.key for tensor in checkpoint.tensors] == ["w"]
    assert [note.kind for note in checkpoint.notes] == [NoteKind.ZIP_DAMAGED]


def test_it_is_not_repaired_but_converted(save):
    """Edits are refused with the command that makes a file that can be repaired."""
    with (
        opened(save(w=np.ones(3))) as (source, container),
        pytest.raises(RefusedError, match="NumPy archive, which cannot be repaired in place"),
    ):
        write(wanted_of(read(source, container), [Drop((("w",),))]), source)


@PLACES
def test_a_mangled_archive_is_read_or_refused(save, places, tmp_path):
    """Cut at every byte, and with every byte changed."""
    data = save(w=np.arange(6, dtype="f4").reshape(2, 3), o=np.array([None, 1], dtype=object)).read_bytes()
    endure(data, tmp_path, places)


def test_a_header_longer_than_any_in_a_deflated_record_needs_no_memory(tmp_path):
    """A record that inflates to a gigabyte is not unpacked to look at its header."""
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("w.npy", "w") as member,
    ):
        member.write(b"\x93NUMPY\x02\x00" + (1 << 20).to_bytes(4, "little"))
        for _ in range(64):
            member.write(bytes(1 << 20))
    checkpoint = open_checkpoint(tmp_path / "bomb.npz")
    assert not checkpoint.tensors and checkpoint.bytes_read < 1 << 20
