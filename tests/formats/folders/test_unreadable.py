"""Why a file of a folder cannot be read, in words that follow its name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import NoteKind
from tests.broken_shards import folder, name


def said(tmp_path, contents):
    """What is said of a shard with these contents, behind its name."""
    Path(folder(tmp_path / "shards", suffix="bin")).write_bytes(contents)
    notes = formats.open_checkpoint(tmp_path / "shards").notes
    (note,) = [each for each in notes if each.kind is NoteKind.FILE_DAMAGED]
    before = f"{name(2, 'bin')}, with 8 tensors of the index, cannot be read: "
    assert (note.member, note.message[: len(before)]) == (name(2, "bin"), before)
    return note.message[len(before) :]


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        (b"", "the file is empty"),
        (bytes(4096), "all 4,096 bytes are zero"),
        (b"Entry not found", 'a message is here instead of the file: "Entry not found"'),
        (b'{"model_type": "llama"}', "it is a JSON file"),
        (bytes(range(1, 200)) * 9, "its format is unrecognised"),
    ],
    ids=["empty", "zeros", "message", "json", "unknown"],
)
def test_what_stands_in_its_place(contents, words, tmp_path):
    """Without the path and without a full stop: the name of the file goes before it."""
    assert said(tmp_path, contents) == words


def test_what_is_wrong_with_a_file_that_is_known(tmp_path):
    """The words of the error: its offset is told elsewhere, and its path not at all."""
    torch.save({"epoch": 42}, tmp_path / "model.bin", _use_new_zipfile_serialization=False)
    raw = (tmp_path / "model.bin").read_bytes()
    words = said(tmp_path, raw.replace(b"K\x2a", b"\xff\x2a"))
    assert words and str(tmp_path) not in words and not words.endswith(".")
