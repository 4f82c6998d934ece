"""A folder of files is read through its files, and never beyond it."""

from __future__ import annotations

import os

import pytest

from ckptdoctor.checkpoint import FolderSource
from ckptdoctor.errors import HostileError, TruncatedError, UnreadableError


def test_names_are_sorted_and_folders_end_in_a_slash(tmp_path):
    """What lies directly in the folder is listed."""
    (tmp_path / "b.pt").write_bytes(b"b")
    (tmp_path / "a").mkdir()
    assert FolderSource(tmp_path).names == ("a/", "b.pt")


def test_files_are_opened_by_name_and_by_path_and_counted(tmp_path):
    """Bytes read of any file count, also of those that were closed meanwhile."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"0123456789")
    source = FolderSource(tmp_path)
    assert source.open("a/x").read(2, 3) == b"234"
    assert source.part(str(tmp_path / "a" / "x")).read(0, 1) == b"0"
    assert source.bytes_read == 4
    source.close()
    assert source.bytes_read == 4


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/hostname", "a//x", "", "a\\..\\..\\x", "x\0y"])
def test_names_that_lead_out_of_the_folder_are_refused(name, tmp_path):
    """An index is no reason to open a file elsewhere."""
    with pytest.raises(HostileError, match="leads out of the folder"):
        FolderSource(tmp_path).open(name)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are counted where Linux lists them")
def test_only_so_many_files_are_open_at_once(tmp_path):
    """Thousands of shards do not use up the file descriptors."""
    before = len(os.listdir("/proc/self/fd"))
    source = FolderSource(tmp_path)
    for number in [*range(100), *range(100)]:
        (tmp_path / str(number)).write_bytes(bytes([number]))
        assert source.open(str(number)).read(0, 1) == bytes([number])
        assert len(os.listdir("/proc/self/fd")) < before + 70
    assert source.bytes_read == 200
    source.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_has_no_bytes_and_must_exist(tmp_path):
    """Nothing can be read of it but its files."""
    source = FolderSource(tmp_path)
    assert source.read(0, 0) == b""
    with pytest.raises(TruncatedError):
        source.read(0, 1)
    with pytest.raises(UnreadableError):
        FolderSource(tmp_path / "nothing")
