"""Why a file of a folder cannot be read, in words that follow its name."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.formats.folders.gathering import why


def said(path):
    """What is said of a file, for the error that reading it gives."""
    with formats.opened(path) as (source, container):
        with pytest.raises(CkptDoctorError) as error:
            formats.read(source, container)
        return why(container, error.value)


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        (b"", "the file is empty"),
        (bytes(4096), "all 4,096 bytes are zero"),
        (b"Entry not found", "a message is here instead of the file: “Entry not found”"),
        (b'{"model_type": "llama"}', "it is a JSON file"),
        (bytes(range(1, 200)) * 9, "it is no checkpoint that is known"),
    ],
    ids=["empty", "zeros", "message", "json", "unknown"],
)
def test_what_stands_in_its_place(contents, words, tmp_path):
    """Without the path and without a full stop: the name of the file goes before it."""
    (tmp_path / "model.bin").write_bytes(contents)
    assert said(tmp_path / "model.bin") == words


def test_what_is_wrong_with_a_file_that_is_known(tmp_path):
    """The words of the error: its offset is told elsewhere, and its path not at all."""
    torch.save({"epoch": 42}, tmp_path / "model.bin", _use_new_zipfile_serialization=False)
    raw = (tmp_path / "model.bin").read_bytes()
    (tmp_path / "model.bin").write_bytes(raw.replace(b"K\x2a", b"\xff\x2a"))
    words = said(tmp_path / "model.bin")
    assert words and str(tmp_path) not in words and not words.endswith(".")
