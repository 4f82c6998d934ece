"""Files of one array, as numpy.save writes them."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

import ckptdoctor
from ckptdoctor.checkpoint import NoteKind, Opaque, Tensor
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import DamagedError, RefusedError
from ckptdoctor.formats import open_checkpoint, opened, read, write
from tests.formats.arrays.arrays import odd, plain
from tests.formats.comparing import assert_same
from tests.formats.mangling import PLACES, endure


def saved(array, path):
    np.save(path, array)
    return path


@pytest.mark.parametrize("name", plain())
def test_an_array_is_a_tensor_at_the_root(name, tmp_path):
    """Type, shape, order and values are those that numpy.load gives."""
    path = saved(plain()[name], tmp_path / "a.npy")
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "NumPy array" and isinstance(checkpoint.tree, Tensor) and not checkpoint.notes
    assert_same(ckptdoctor.load(path), np.load(path))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_header_is_read(version, tmp_path):
    """Versions 1, 2 and 3 differ in the width of the length and in the encoding."""
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, np.ones((2, 3)), version=version)
    assert_same(ckptdoctor.load(tmp_path / "a.npy"), np.ones((2, 3)))


def test_big_endian_values_are_noted_and_swapped(tmp_path):
    """The note says so, and loading gives the values."""
    path = saved(np.arange(6, dtype=">f4").reshape(2, 3), tmp_path / "a.npy")
    assert [note.kind for note in open_checkpoint(path).notes] == [NoteKind.BIG_ENDIAN]
    assert_same(ckptdoctor.load(path), np.load(path))


@pytest.mark.parametrize("name", [name for name in odd() if name != "weights"])
def test_an_array_without_a_type_of_torch_is_shown_and_said_not_to_be_read(name, tmp_path):
    """Objects, structures, text and dates."""
    checkpoint = open_checkpoint(saved(odd()[name], tmp_path / "a.npy"))
    assert isinstance(checkpoint.tree, Opaque) and not checkpoint.tensors
    assert [note.kind for note in checkpoint.notes] == [NoteKind.NOT_EXAMINED]


def test_a_file_that_is_cut_off_or_goes_on_says_so(tmp_path):
    """The values that are missing are counted, and those behind the end too."""
    data = saved(np.ones(10), tmp_path / "a.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(data[:-8])
    (tmp_path / "long.npy").write_bytes(data + b"12345")
    short, long = open_checkpoint(tmp_path / "short.npy"), open_checkpoint(tmp_path / "long.npy")
    assert [(note.kind, note.offset) for note in short.notes] == [(NoteKind.TRUNCATED, len(data) - 8)]
    assert [(note.kind, note.offset) for note in long.notes] == [(NoteKind.TRAILING_BYTES, len(data))]
    with pytest.raises(DamagedError, match="80 bytes, but the file has 72"):
        ckptdoctor.load(tmp_path / "short.npy")


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 70 + "), }",
        "{'descr': '<f4', 'fortran_order': __import__('os').system('true'), 'shape': (1,), }",
        "(" * 9000,
    ],
)
def test_a_header_that_makes_no_sense_is_damage(text, tmp_path):
    """Nothing in the header is evaluated, and no size is believed that cannot be."""
    raw = text.encode()
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw + bytes(64))
    with pytest.raises(DamagedError):
        open_checkpoint(tmp_path / "a.npy")


def test_it_is_not_repaired_but_converted(tmp_path):
    """Edits are refused with the command that makes a file that can be repaired."""
    with (
        opened(saved(np.ones(3), tmp_path / "a.npy")) as (source, container),
        pytest.raises(
            RefusedError, match=r"NumPy array, which cannot be repaired in place\. Convert it first: ckptdoctor convert"
        ),
    ):
        write(wanted_of(read(source, container), ()), source)


@PLACES
def test_a_mangled_file_is_read_or_refused(places, tmp_path):
    """Cut at every byte, and with every byte changed."""
    buffer = io.BytesIO()
    np.save(buffer, np.asfortranarray(np.ones((3, 4), dtype="f4")))
    endure(buffer.getvalue(), tmp_path, places)


def test_values_can_be_changed_without_changing_the_file(tmp_path):
    """The file is mapped, copy on write."""
    path = saved(np.zeros(3, dtype="f4"), tmp_path / "a.npy")
    loaded = ckptdoctor.load(path)
    loaded += 1
    assert torch.equal(loaded, torch.ones(3)) and not np.load(path).any()
