"""What a checkpoint knows of itself as a whole."""

from __future__ import annotations

from dataclasses import replace

import torch

import ckptdoctor
from ckptdoctor.checkpoint import Note, NoteKind
from ckptdoctor.checkpoint.checkpoint import told_of, unread_files
from ckptdoctor.formats import open_checkpoint
from tests.broken_shards import SECOND, folder, name


def test_a_note_says_that_values_are_big_endian(tmp_path):
    """It is one among others, and without it they are not."""
    torch.save({"w": torch.ones(2)}, tmp_path / "model.pt")
    found = open_checkpoint(str(tmp_path / "model.pt"))
    others = Note(NoteKind.TRUNCATED, "cut"), Note(NoteKind.BIG_ENDIAN, "swapped")
    assert [replace(found, notes=notes).big_endian for notes in ((), others[:1], others)] == [False, False, True]


def test_files_matter_to_the_parts_that_hold_their_tensors(tmp_path):
    """Where an index names the tensors of a file, it matters to parts that hold one of them; else to every part."""
    folder(tmp_path / "listed", damage="missing")
    folder(tmp_path / "numbered", damage="missing", index=False)
    listed, numbered = (ckptdoctor.open(tmp_path / each) for each in ("listed", "numbered"))
    for root in ((), (SECOND[0],)):
        assert [note.member for note in unread_files(listed, root)] == [name(2)]
    assert unread_files(listed, ("model.layers.0.a.weight",)) == ()
    assert [note.member for note in unread_files(numbered, ("model.layers.0.a.weight",))] == [name(2)]


def test_the_first_files_are_told_and_the_rest_is_counted(tmp_path):
    """Three in their own words, without the path of the folder."""
    folder(tmp_path / "m")
    whole = ckptdoctor.open(tmp_path / "m")
    notes = [Note(NoteKind.FILE_MISSING, f"{whole.path}: f{index} is missing.") for index in range(5)]
    assert told_of(whole, notes[:1]) == "f0 is missing"
    assert told_of(whole, notes[:3]) == "f0 is missing; f1 is missing; f2 is missing"
    assert told_of(whole, notes) == "f0 is missing; f1 is missing; f2 is missing; and 2 more files"
    assert told_of(whole, notes[:4]).endswith("; and 1 more file")
