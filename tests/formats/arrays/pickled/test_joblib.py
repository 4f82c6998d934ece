"""Files as joblib.dump writes them uncompressed: the arrays lie between the opcodes of the pickle."""

from __future__ import annotations

import numpy as np
import pytest

import ckptdoctor
from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.errors import CkptDoctorError, DamagedError
from ckptdoctor.formats import open_checkpoint
from tests.formats.arrays.arrays import odd, plain
from tests.formats.arrays.pickled.joblib_writer import joblib_bytes
from tests.formats.comparing import assert_same
from tests.formats.mangling import PLACES, endure


def dumped(value, path, protocol=4, *, aligned=True):
    path.write_bytes(joblib_bytes(value, protocol, aligned=aligned))
    return path


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_between_the_opcodes_are_tensors(protocol, aligned, tmp_path):
    """With the padding of joblib 1.2 and without; the values are those that were dumped."""
    value = {"state": plain(), "epoch": 3, "list": [np.ones(3), "text"]}
    path = dumped(value, tmp_path / "m.joblib", protocol, aligned=aligned)
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "pickle" and not checkpoint.notes
    assert_same(ckptdoctor.load(path), value)


def test_values_stay_in_the_file(tmp_path):
    """At the aligned place where joblib put them."""
    path = dumped({"w": np.arange(100.0)}, tmp_path / "m.joblib")
    extent = open_checkpoint(path).tensors[0].storage.extent
    assert extent.offset % 16 == 0
    assert path.read_bytes()[extent.offset : extent.offset + extent.length] == np.arange(100.0).tobytes()


@pytest.mark.parametrize("protocol", [2, 4])
def test_arrays_without_a_type_of_torch_are_stepped_over(protocol, tmp_path):
    """An array of objects is a pickle of its own in the stream; what comes behind it is read."""
    path = dumped(odd(), tmp_path / "m.joblib", protocol)
    checkpoint = open_checkpoint(path)
    assert [tensor.key for tensor in checkpoint.tensors] == ["weights"]
    assert {note.kind for note in checkpoint.notes} == {NoteKind.NOT_EXAMINED}
    assert_same(ckptdoctor.load(path)["weights"], odd()["weights"])


class Named:
    """An object whose class a report has to name."""


def test_names_in_the_pickle_of_an_array_of_objects_are_told(tmp_path):
    """They would be imported just like all others."""
    checkpoint = open_checkpoint(dumped({"o": np.array([Named(), None], dtype=object)}, tmp_path / "m.joblib"))
    assert f"{__name__}.Named" in {use.full for use in checkpoint.globals}


def test_a_shape_beyond_the_end_of_the_file_is_cut_off(tmp_path):
    """Lengths are checked before anything is skipped."""
    data = joblib_bytes({"w": np.zeros((3, 5), "f4")}, 2).replace(b"K\x03K\x05\x86", b"K\xffK\xff\x86")
    (tmp_path / "m.joblib").write_bytes(data)
    with pytest.raises(CkptDoctorError, match="260,100 bytes"):
        open_checkpoint(tmp_path / "m.joblib")


def test_an_array_that_does_not_tell_its_length_is_damage(tmp_path):
    """Nothing behind it could be found."""
    data = joblib_bytes({"w": np.zeros(3, "f4")}, 2).replace(b"f4", b"zz")
    (tmp_path / "m.joblib").write_bytes(data)
    with pytest.raises(DamagedError):
        open_checkpoint(tmp_path / "m.joblib")


@PLACES
@pytest.mark.parametrize("protocol", [2, 5])
def test_a_mangled_file_is_read_or_refused(protocol, places, tmp_path):
    """Cut at every byte, and with every byte changed."""
    value = {"w": np.ones((2, 3), "f4"), "o": np.array([None, 1], dtype=object)}
    endure(joblib_bytes(value, protocol), tmp_path, places)
