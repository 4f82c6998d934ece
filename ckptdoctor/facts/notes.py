"""What a reader noticed on the way, wherever it was written down."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, Container, Note, NoteKind
from ckptdoctor.facts.integrity import Integrity

# Anything that carries notes. A rule over Noted does not depend on the moment at which a reader sees something: when
# it recognises the file, when it reads the contents, or when it reads every byte. It runs over each of the three.
Noted = Container | Checkpoint | Integrity


def notes_of(subject: Noted, *kinds: NoteKind) -> list[Note]:
    """The notes of these kinds. Those of a Checkpoint that its Container has already are left out: said once."""
    told = subject.container.notes if isinstance(subject, Checkpoint) and subject.container is not None else ()
    return [note for note in subject.notes if note.kind in kinds and note not in told]


def format_of(subject: Noted) -> str:
    """The name of the container format ("torch zip"), or "" when nothing matched."""
    return subject.checkpoint.format if isinstance(subject, Integrity) else subject.format
