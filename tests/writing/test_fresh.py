"""New files are whole or not there, and never cost what was there."""

import os

import pytest

from ckptdoctor.errors import WriteError
from ckptdoctor.writing.fresh import write_fresh
from ckptdoctor.writing.target import resolve, temporary_name

PAGE = b"<!doctype html>"


def test_a_file_is_written(tmp_path):
    """It has its contents, the permissions of new files, and no companion."""
    old = os.umask(0o027)
    try:
        write_fresh(PAGE + b"x", str(tmp_path / "a.html"), PAGE)
    finally:
        os.umask(old)
    assert (tmp_path / "a.html").read_bytes() == PAGE + b"x" and os.listdir(tmp_path) == ["a.html"]
    if os.name == "posix":
        assert (tmp_path / "a.html").stat().st_mode & 0o777 == 0o640


def test_only_what_is_alike_is_replaced(tmp_path):
    """An empty file or a page with force; nothing without it, and nothing else ever."""
    path = tmp_path / "a.html"
    for before, force, allowed in (
        (b"", True, True),
        (b"\n<!DOCTYPE HTML><p>", True, True),
        (PAGE, False, False),
        (b"PK\x03\x04", True, False),
    ):
        path.write_bytes(before)
        if allowed:
            write_fresh(PAGE + b"new", str(path), PAGE, force=force)
            assert path.read_bytes() == PAGE + b"new"
        else:
            with pytest.raises(WriteError):
                write_fresh(PAGE + b"new", str(path), PAGE, force=force)
            assert path.read_bytes() == before


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    """A full disk is one sentence, and the old page stays."""
    path = tmp_path / "a.html"
    path.write_bytes(PAGE)

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WriteError, match="no space left"):
        write_fresh(PAGE + b"new", str(path), PAGE, force=True)
    assert path.read_bytes() == PAGE and os.listdir(tmp_path) == ["a.html"]


def test_a_link_that_someone_has_put_there_is_not_written_through(tmp_path, monkeypatch):
    """Even who guesses the temporary name does not get another file written."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    monkeypatch.setattr(os, "urandom", bytes)
    os.symlink(victim, temporary_name(resolve(str(tmp_path / "a.html"), None)))
    with pytest.raises(WriteError, match="could not be written"):
        write_fresh(PAGE + b"x", str(tmp_path / "a.html"), PAGE)
    assert victim.read_bytes() == b"precious" and not (tmp_path / "a.html").exists()


def test_a_folder_and_a_missing_folder_are_refused(tmp_path):
    """Each in one sentence."""
    for output in (tmp_path, tmp_path / "no" / "a.html"):
        with pytest.raises(WriteError):
            write_fresh(PAGE, str(output), PAGE, force=True)
