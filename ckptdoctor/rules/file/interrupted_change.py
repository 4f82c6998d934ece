"""A change in place was interrupted: the file may be half old and half new.

Meaning
    ``ckptdoctor fix --in-place`` was changing the file when the machine stopped or the process was killed. Its journal,
    ``.NAME.ckptdoctor-hot`` next to the file, holds every byte that was to be overwritten. A folder of shards has one
    journal, ``.ckptdoctor-hot`` in it, and all files that it names are interrupted.

Why it matters
    Some of the new bytes may be in the file and others not. It may load and be wrong, so nothing in it is examined.

Symptoms
    Nothing: it may load.

Detection
    The journal is there. Its name changes in the moment in which the change is complete.

Repair
    ``ckptdoctor undo FILE``, or ``undo FOLDER``, restores what was there before, byte for byte. Never delete the
    journal.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Container, NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import notes_of
from ckptdoctor.rules.when import noticed

_MODEL = {"w": T((3,))}
SICK = (
    Example("a journal next to the file", _MODEL, name="model.pt", beside={".model.pt.ckptdoctor-hot": b"a journal"}),
)
HEALTHY = (
    Example("a change that is complete", _MODEL, name="model.pt", beside={".model.pt.ckptdoctor-undo-0001": b"old"}),
)


@rule("F018", "interrupted-change", Severity.ERROR, when=noticed)
def interrupted_change(container: Container) -> Iterator[Problem]:
    """Report a file whose change in place was not completed."""
    for note in notes_of(container, NoteKind.INTERRUPTED):
        yield Problem(
            message=note.message,
            cause="The machine or the process stopped in the middle of it, so the file may be half old and half new.",
            advice="The journal next to it holds every byte that was overwritten:",
            commands=(note.guidance,),
        )
