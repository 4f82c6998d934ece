"""Plain pickles with arrays of NumPy."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import ckptdoctor
from ckptdoctor.checkpoint import Elided, NoteKind, Role
from ckptdoctor.edits import Drop
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import DamagedError, HostileError, NotACheckpointError, RefusedError, TruncatedError
from ckptdoctor.formats import open_checkpoint, opened, read, write
from ckptdoctor.formats.arrays.pickled import stream
from tests.formats.arrays.arrays import odd, plain
from tests.formats.comparing import assert_same
from tests.formats.mangling import PLACES, endure

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def dumped(value, path, protocol=4):
    path.write_bytes(pickle.dumps(value, protocol))
    return path


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_arrays_are_tensors_where_they_stand(protocol, tmp_path):
    """Every protocol, in dicts, lists and tuples, with the values that pickle.load gives."""
    value = {"state": plain(), "epoch": 3, "history": [np.ones(3), (np.zeros(2), {"lr": 0.1})]}
    path = dumped(value, tmp_path / "m.pkl", protocol)
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "pickle" and not checkpoint.notes
    assert [(each.path, each.role) for each in checkpoint.state_dicts] == [(("state",), Role.MODEL)]
    assert_same(ckptdoctor.load(path), pickle.loads(path.read_bytes()))


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_values_stay_in_the_file(protocol, tmp_path):
    """An extent says where they lie, and it holds just them."""
    path = dumped({"w": np.arange(1000.0), "v": np.ones(2, "u1")}, tmp_path / "m.pkl", protocol)
    for tensor, array in zip(open_checkpoint(path).tensors, (np.arange(1000.0), np.ones(2, "u1")), strict=True):
        extent = tensor.storage.extent
        assert extent.file == str(path) and tensor.values is None
        assert path.read_bytes()[extent.offset : extent.offset + extent.length] == array.tobytes()


def test_what_protocol_2_writes_as_text_is_taken_out_of_it(tmp_path):
    """Bytes above 127 take two bytes in the file, so no extent can name them."""
    array = np.arange(256, dtype="u1")
    (tensor,) = open_checkpoint(dumped({"w": array}, tmp_path / "m.pkl", 2)).tensors
    assert tensor.storage is None and bytes(tensor.values) == array.tobytes()


def test_one_array_under_two_keys_is_one_storage(tmp_path):
    """Ties stay ties when it is loaded."""
    shared = np.ones((2, 2))
    for protocol in (2, 5):
        loaded = ckptdoctor.load(dumped({"a": shared, "b": shared}, tmp_path / "m.pkl", protocol))
        assert loaded["a"].data_ptr() == loaded["b"].data_ptr()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_arrays_without_a_type_of_torch_stay_objects_and_are_named(protocol, tmp_path):
    """Objects, structures, text and dates; the array beside them is a tensor."""
    checkpoint = open_checkpoint(dumped(odd(), tmp_path / "m.pkl", protocol))
    assert [tensor.key for tensor in checkpoint.tensors] == ["weights"]
    assert {note.kind for note in checkpoint.notes} == {NoteKind.NOT_EXAMINED} and len(checkpoint.notes) == 4


def test_big_endian_arrays_are_swapped_when_loaded(tmp_path):
    """A note says so; beside little-endian ones they are left out."""
    path = dumped({"a": np.arange(4, dtype=">i4"), "b": np.ones(3, ">f8")}, tmp_path / "m.pkl")
    assert [note.kind for note in open_checkpoint(path).notes] == [NoteKind.BIG_ENDIAN]
    assert_same(ckptdoctor.load(path), pickle.loads(path.read_bytes()))
    mixed = open_checkpoint(dumped({"a": np.ones(3), "b": np.ones(3, ">f8")}, tmp_path / "m.pkl"))
    assert [tensor.key for tensor in mixed.tensors] == ["a"]


def python2(shape=(2, 3)):
    """The pickle that Python 2 and NumPy 1 wrote of {"w": an array} under protocol 2."""
    values = np.arange(6, dtype="<f4").tobytes() * 20
    return (
        b"\x80\x02}q\x00U\x01wq\x01cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85U\x01b"
        b"\x87Rq\x04(K\x01K\x14K\x02K\x03\x87cnumpy\ndtype\nq\x05U\x02f4K\x00K\x01\x87Rq\x06(K\x03U\x01<NNNJ\xff\xff\xff"
        b"\xffJ\xff\xff\xff\xffK\x00tb\x89T" + len(values).to_bytes(4, "little") + values + b"tbs."
    )


def test_pickles_of_python_2_are_read(tmp_path):
    """Their strings hold the bytes of arrays as they are, so that an extent names them."""
    (tmp_path / "m.pkl").write_bytes(python2())
    (tensor,) = open_checkpoint(tmp_path / "m.pkl").tensors
    assert tensor.path == ("w",) and tensor.shape == (20, 2, 3) and tensor.storage.extent.length == 480
    theirs = pickle.loads(python2(), encoding="latin1")
    assert_same(ckptdoctor.load(tmp_path / "m.pkl"), theirs)


def test_long_bytes_are_counted_rather_than_shown(tmp_path):
    """Short ones are shown as they are."""
    tree = open_checkpoint(dumped({"image": bytes(100_000), "mark": b"ab"}, tmp_path / "m.pkl")).tree
    values = dict(tree.entries)
    assert isinstance(values["image"], Elided) and values["mark"] == b"ab"


def test_bytes_behind_the_end_are_a_note(tmp_path):
    """pickle.load never reads them."""
    path = tmp_path / "m.pkl"
    path.write_bytes(pickle.dumps({"w": np.ones(3)}) + b"more")
    assert [note.kind for note in open_checkpoint(path).notes] == [NoteKind.TRAILING_BYTES]


def test_a_pickle_that_ends_too_soon_is_damaged(tmp_path):
    """The error says at which byte."""
    path = tmp_path / "m.pkl"
    path.write_bytes(pickle.dumps({"w": np.ones(300)})[:-700])
    with pytest.raises(TruncatedError, match="cut off"):
        open_checkpoint(path)


def test_a_shape_that_the_values_do_not_fill_is_no_tensor(tmp_path):
    """Nothing is believed of an array that its bytes do not bear out."""
    data = python2().replace(b"K\x14K\x02K\x03\x87", b"K\x15K\x02K\x03\x87")
    (tmp_path / "m.pkl").write_bytes(data)
    checkpoint = open_checkpoint(tmp_path / "m.pkl")
    assert not checkpoint.tensors and [note.kind for note in checkpoint.notes] == [NoteKind.NOT_EXAMINED]


class Canary:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, (f"{sys.executable} -c \"open('canary', 'w')\"",)


def test_nothing_is_run_and_every_name_is_told(tmp_path, monkeypatch):
    """A file that would run a command beside its array."""
    monkeypatch.chdir(tmp_path)
    path = dumped({"w": np.ones(3), "x": Canary()}, tmp_path / "m.pkl")
    checkpoint = open_checkpoint(path)
    ckptdoctor.load(path)
    assert not (tmp_path / "canary").exists()
    assert "posix.system" in {use.full for use in checkpoint.globals} or os.name != "posix"


def test_too_much_text_is_refused(tmp_path, monkeypatch):
    """Protocol 2 would need memory for all of it."""
    monkeypatch.setattr(stream, "_MOST_TEXT", 1 << 17)
    with pytest.raises(HostileError, match="protocol 4"):
        open_checkpoint(dumped({"w": np.ones(20_000), "v": np.zeros(20_000)}, tmp_path / "m.pkl", 2))


def test_a_long_file_is_mapped(tmp_path):
    """Arrays of 80 MB take next to no memory to look at, and load as they are."""
    value = {f"w{index}": np.full(2_500_000, index, dtype="f4") for index in range(8)}
    path = dumped(value, tmp_path / "m.pkl")
    assert_same(ckptdoctor.load(path), value)
    program = (
        "import resource, sys\nfrom ckptdoctor.formats import open_checkpoint\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert len(open_checkpoint(sys.argv[1]).tensors) == 8\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    grown = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True).stdout
    assert int(grown) < 16_000


def test_it_is_not_repaired_but_converted(tmp_path):
    """Edits are refused with the command that makes a file that can be repaired."""
    with (
        opened(dumped({"w": np.ones(3)}, tmp_path / "m.pkl")) as (source, container),
        pytest.raises(RefusedError, match="pickle, which cannot be repaired in place"),
    ):
        write(wanted_of(read(source, container), [Drop((("w",),))]), source)


@PLACES
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_mangled_pickle_is_read_or_refused(protocol, places, tmp_path):
    """Cut at every byte, and with every byte changed."""
    endure(pickle.dumps({"w": np.asfortranarray(np.ones((2, 3), "f4")), "e": 1}, protocol), tmp_path, places)


def test_a_text_that_looks_like_an_old_pickle_is_damage_and_no_crash(tmp_path):
    """Protocol 0 is text as well."""
    (tmp_path / "m.pkl").write_bytes(b"(dp0\nthis is not a pickle, just a sentence.")
    with pytest.raises(DamagedError):
        open_checkpoint(tmp_path / "m.pkl")


def test_a_text_that_claims_to_be_huge_is_cut_off(tmp_path):
    """Not a bomb: only what is there can fill memory."""
    (tmp_path / "x.pkl").write_bytes(b"\x80\x02X\xff\xff\xff\x7fabc.")
    with pytest.raises(TruncatedError, match="only 4 remain"):
        ckptdoctor.open(tmp_path / "x.pkl")


@pytest.mark.parametrize(
    "value", ["a text", (1, 2), ("a", np.ones(2)), ((0.5, 1), "b"), [(1, 2)], {"a": 1}, (1 << 80, 2)]
)
@pytest.mark.parametrize("protocol", [0, 1])
def test_the_first_opcodes_of_old_protocols(value, protocol, tmp_path):
    """Texts and tuples too are known by how they begin."""
    if protocol == 1 and not isinstance(value, (list, dict)):
        pytest.skip("begins with too few bytes that only a pickle has")
    path = dumped(value, tmp_path / "m.pkl", protocol)
    assert_same(ckptdoctor.load(path), pickle.loads(path.read_bytes()))


def test_strings_of_python_2(tmp_path):
    """They begin with S and a quote."""
    (tmp_path / "m.pkl").write_bytes(b"S'abc'\np0\n.")
    assert open_checkpoint(tmp_path / "m.pkl").tree == "abc"


@pytest.mark.parametrize(
    "text", ["Very much text\n.", "Version 1\np. 3\n.", "(1) First\n.", "(Very\nshort).", "S'il\n."]
)
def test_text_is_no_pickle(text, tmp_path):
    """Only what is noted for later use looks like a pickle."""
    (tmp_path / "m.pkl").write_text(text)
    with pytest.raises(NotACheckpointError, match="text file"):
        open_checkpoint(tmp_path / "m.pkl")
