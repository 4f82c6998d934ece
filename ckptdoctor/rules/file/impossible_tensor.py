"""A tensor's description is impossible: it reaches past its storage, or its sizes are invalid.

Meaning
    The view of a tensor (offset, shape, strides) leads outside its storage, or has negative or absurd numbers, more
    dimensions than torch knows, or two dtypes on one storage. No version of torch writes that: the file is damaged,
    was edited, or was made to mislead.

Why it matters
    torch refuses most of these when loading; some it accepts and shows bytes that belong to something else.

Symptoms
    setStorage: sizes [43], strides [1], storage offset 0, and itemsize 4 requiring a storage size of 172 are out of
    bounds for storage of size 168

Detection
    The first and the last element of every view are computed and compared with the storage. Tensors of one file with
    the same fault are one finding.

Repair
    None: use another copy of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Note, NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, location, notes_of, sentence
from ckptdoctor.rules.when import noticed
from ckptdoctor.wording import and_so_on, beyond

SICK = (
    Example(
        "a view past its storage",
        {"w": T((42,))},
        "torch legacy",
        damage=lambda data: data.replace(b"K\x2a\x85", b"K\x2b\x85"),
    ),
)
_OTHERWISE = "a tensor's description is impossible"
_SHOWN = 3  # of the others
HEALTHY = (Example("a view of a part of its storage", {"w": T((42,), storage_size=100)}, "torch legacy"),)


@rule("F015", "impossible-tensor", Severity.ERROR, when=noticed)
def impossible_tensor(subject: Noted) -> Iterator[Problem]:
    """Report views outside their storage, and invalid sizes."""
    groups: dict[tuple[NoteKind, str | None], list[Note]] = {}
    for note in notes_of(subject, NoteKind.TENSOR_OUT_OF_BOUNDS, NoteKind.TENSOR_ODD):
        groups.setdefault((note.kind, note.member), []).append(note)
    yield from map(_problem, groups.values())


def _problem(notes: list[Note]) -> Problem:
    """Return one for all: the first in full, a few of the others after it."""
    first, *others = [sentence(note, _OTHERWISE) for note in notes[: _SHOWN + 2]]
    also = f" The others: {and_so_on(others, _SHOWN, between='; ', end='; …')}." if others else ""
    return Problem(
        message=first + beyond(len(notes) - 1, before=", and ", after=" like it"),
        cause=f"torch does not write such tensors: the file is damaged, was edited, or was made to mislead.{also}",
        advice="Use another copy of the file.",
        location=location(notes[0]),
    )
