"""Legacy files are changed where they are: the new pickles end where the old ones did, whatever they say."""

from __future__ import annotations

import io
import pickle

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource
from ckptdoctor.edits import Drop, Rename
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import RefusedError
from ckptdoctor.writing import Copy
from tests.formats.torch.legacy.support import bytes_of, legacy_bytes, read
from tests.formats.torch.legacy.test_python2 import PYTHON2, STRIP

TIED = torch.arange(6.0)
CONTENTS = {f"{'x' * 60}.{name}": value for name, value in {"a": TIED, "b": TIED[2:5], "c": torch.ones(3, 4)}.items()}
NAMES = [key[-1] for key in CONTENTS]


def fitting(path, edits, block=None):
    """The recipe of a change in place."""
    with FileSource(path) as source:
        return formats.write_in_place(wanted_of(read(path), edits), source, block)


def renamed(old, new):
    """Another prefix for all names."""
    return [Rename((), tuple((f"{old}.{name}", f"{new}.{name}") for name in NAMES))]


@pytest.fixture
def path(tmp_path):
    """A file with tied tensors."""
    (tmp_path / "old.pt").write_bytes(legacy_bytes(CONTENTS))
    return tmp_path / "old.pt"


def pickles_of(data):
    """What the first three pickles say, and nothing of what was saved."""
    file = io.BytesIO(data)
    return [pickle.load(file) for _ in range(3)]


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_shorter_names_leave_every_storage_where_it_is(path, protocol):
    """By each number of bytes: torch loads the same, tied, and the system info has blanks at most added."""
    data = legacy_bytes(CONTENTS, protocol)
    path.write_bytes(data)
    for less in range(61):
        prefix = "y" * (60 - less)
        recipe = fitting(path, renamed("x" * 60, prefix))
        made = bytes_of(recipe)
        assert len(made) == len(data)
        assert [type(each) for each in recipe.segments[1:]] == [Copy]
        assert recipe.segments[1].offset == recipe.segments[0].length
        found = torch.load(io.BytesIO(made), weights_only=protocol == 2)
        assert {key: value.tolist() for key, value in found.items()} == {
            key.replace("x" * 60, prefix): value.tolist() for key, value in CONTENTS.items()
        }
        assert found[f"{prefix}.a"].untyped_storage().data_ptr() == found[f"{prefix}.b"].untyped_storage().data_ptr()
        (*before, info), (*after, padded) = pickles_of(data), pickles_of(made)
        assert before == after
        assert {name: value for name, value in padded.items() if name.strip()} == info
        assert len(padded) <= len(info) + 1


def test_the_room_that_shorter_names_leave_is_used_again(path):
    """To the last byte: the old names fit."""
    for _ in range(3):
        for old, new in (("x" * 60, "y" * 7), ("y" * 7, "x" * 60)):
            path.write_bytes(bytes_of(fitting(path, renamed(old, new))))
            assert list(torch.load(path)) == [f"{new}.{name}" for name in NAMES]


def test_longer_names_get_whole_blocks_where_the_file_system_has_them(path):
    """And are refused elsewhere."""
    data = path.read_bytes()
    assert len(bytes_of(fitting(path, renamed("x" * 60, "y" * 61)))) == len(data)  # a few bytes fit
    for longer in (*range(64, 90), 5000):
        edits = renamed("x" * 60, "y" * (longer - 1) + "z")
        with pytest.raises(RefusedError, match="the file system cannot insert blocks"):
            fitting(path, edits)
        made = bytes_of(fitting(path, edits, 4096))
        assert len(made) == len(data) + (4096 if longer < 90 else 4 * 4096)
        found = torch.load(io.BytesIO(made))
        assert [value.tolist() for value in found.values()] == [value.tolist() for value in CONTENTS.values()]
        assert next(iter(found)) == "y" * (longer - 1) + "z.a"


def test_python_2_files_are_changed_too(path):
    """Their system info has texts of Python 2."""
    path.write_bytes(PYTHON2)
    made = bytes_of(fitting(path, [STRIP]))
    assert len(made) == len(PYTHON2)
    found = torch.load(io.BytesIO(made), map_location="cpu", weights_only=False, encoding="latin1")
    assert {key: value.tolist() for key, value in found["state_dict"].items()} == {"w": [1.0] * 3, "b": [2.0] * 3}


def test_tensors_are_not_left_out(path):
    """Their bytes would be cut out of the middle."""
    with pytest.raises(RefusedError, match="bytes of tensors would be written or left out"):
        fitting(path, [Drop(((f"{'x' * 60}.c",),))])


def endless():
    """A dict in itself."""
    found = {}
    found["again"] = found
    return found


@pytest.mark.parametrize(
    "info", [[1, 2], {1: 2}, {"a": [1]}, {"a": {"b": {"c": 1}}}, {"a": 1.5}, {"a": complex(1, 2)}, endless()], ids=repr
)
def test_a_system_info_that_torch_does_not_write_is_left_alone(path, info):
    """What nobody knows is not written again, so the names must have exactly the old length."""
    data = path.read_bytes()
    file = io.BytesIO(data)
    for _ in range(2):
        pickle.load(file)
    start = file.tell()
    pickle.load(file)
    path.write_bytes(data[:start] + pickle.dumps(info, 2) + data[file.tell() :])
    for block in (None, 4096):
        with pytest.raises(RefusedError, match="not what torch writes"):
            fitting(path, renamed("x" * 60, "y" * 30), block)
    made = bytes_of(fitting(path, renamed("x" * 60, "y" * 60)))
    assert len(made) == path.stat().st_size
    assert next(iter(torch.load(io.BytesIO(made), weights_only=False))) == "y" * 60 + ".a"
