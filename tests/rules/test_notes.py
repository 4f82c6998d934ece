"""Whatever a reader notices is told by some rule, or listed as not examined."""

from __future__ import annotations

import pytest

from ckptdoctor.checkpoint import Checkpoint, Container, Note, NoteKind
from ckptdoctor.rules.kit.noticed import MOST
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.values.damage import Integrity

FORMATS = ("torch zip", "torch legacy", "safetensors", "plain pickle", "")
TOLD = [kind for kind in NoteKind if kind is not NoteKind.NOT_EXAMINED]


def container(format_, *notes):
    return Container("a.pt", 100, format_, b"PK\3\4", True, notes=notes)


def checkpoint(format_, *notes, holder=None):
    return Checkpoint("a.pt", format_, 100, {}, (), (), (), notes=notes, container=holder)


def findings(subject):
    return [finding for rule in all_rules() if isinstance(subject, rule.subject) for finding in rule.run(subject)]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("kind", TOLD, ids=lambda kind: kind.value)
def test_every_kind_of_note_is_told_by_one_rule(kind, format_):
    """Of a recognised file, whatever its format: one cause, one finding, in the reader's words where they fit."""
    subject = container(format_, Note(kind, "this was noticed"))
    told = findings(subject)
    assert len({finding.code for finding in told} - {"C105"}) == 1


@pytest.mark.parametrize(
    "kind",
    [kind for kind in TOLD if kind.value.split("-")[0] in ("zip", "pickle", "storage", "tensor", "duplicate", "crc")],
    ids=lambda kind: kind.value,
)
def test_notes_of_the_contents_are_told_too(kind):
    """A reader may notice something only while it reads the contents."""
    note = Note(kind, "this was noticed", "a/data.pkl", 7)
    told = findings(checkpoint("torch zip", note))
    assert len(told) == 1
    assert (told[0].location.member, told[0].location.offset) == ("a/data.pkl", 7)


def test_a_note_is_told_once():
    """What the container said already is not said again of its checkpoint."""
    note = Note(NoteKind.ZIP_UNUSUAL, "this was noticed")
    assert findings(checkpoint("torch zip", note, holder=container("torch zip", note))) == []


def test_many_notes_of_one_kind_are_summed_up():
    """A flood of notes is a few findings and a count."""
    notes = [Note(NoteKind.PICKLE_AMBIGUOUS, f"place {index}") for index in range(100)]
    told = findings(checkpoint("torch zip", *notes))
    assert len(told) == MOST + 1
    assert told[-1].message.startswith(f"{100 - MOST} more places")


def test_what_was_not_examined_is_listed(tmp_path):
    """A note of that kind is no finding, and the report lists it among what was skipped."""
    assert findings(checkpoint("torch zip", Note(NoteKind.NOT_EXAMINED, "too deep"))) == []


def test_the_notes_of_a_deep_examination_are_its_damage():
    """They repeat the damage in a form that other tools read, and are told from the damage itself."""
    assert findings(Integrity(checkpoint("torch zip"), (), 0, 0)) == []
