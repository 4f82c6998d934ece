"""What a checkpoint knows of itself as a whole."""

from __future__ import annotations

from dataclasses import replace

import torch

from ckptdoctor.checkpoint import Note, NoteKind
from ckptdoctor.formats import open_checkpoint


def test_a_note_says_that_values_are_big_endian(tmp_path):
    """It is one among others, and without it they are not."""
    torch.save({"w": torch.ones(2)}, tmp_path / "model.pt")
    found = open_checkpoint(str(tmp_path / "model.pt"))
    others = Note(NoteKind.TRUNCATED, "cut"), Note(NoteKind.BIG_ENDIAN, "swapped")
    assert [replace(found, notes=notes).big_endian for notes in ((), others[:1], others)] == [False, False, True]
