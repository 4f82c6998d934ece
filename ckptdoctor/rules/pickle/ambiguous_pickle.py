"""Unpicklers disagree about this pickle.

Meaning
    The stream uses something that no pickler writes and that Python's two machines, torch's ``weights_only`` machine
    and ``pickletools`` read differently: frames that end inside an opcode, odd spellings of numbers, values left over
    at the end.

Why it matters
    What one program shows is not what another loads. Files have evaded scanners this way.

Symptoms
    Nothing, or an error that depends on the program.

Detection
    Our own machine follows the stream without running anything and marks each such place with its byte offset.

Repair
    None: download the file from its source again. It is not repaired, since any repair would have to choose one of the
    readings.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, notes_of, problems
from ckptdoctor.rules.when import noticed

SICK = (
    Example(
        "an odd spelling of a number",
        {"epoch": 42, "w": T((3,))},
        "torch legacy",
        damage=lambda data: data.replace(b"K\x2a", b"I4_2\n"),
    ),
)
HEALTHY = (Example("a number in its usual form", {"epoch": 42, "w": T((3,))}, "torch legacy"),)


@rule("P213", "ambiguous-pickle", Severity.WARNING, when=noticed)
def ambiguous_pickle(subject: Noted) -> Iterator[Problem]:
    """Report streams that unpicklers read differently."""
    yield from problems(
        notes_of(subject, NoteKind.PICKLE_AMBIGUOUS),
        otherwise="unpicklers disagree about this pickle",
        cause="No pickler writes this, and programs that read pickles interpret it differently.",
        advice="Download the file from its source again; load it only with weights_only=True.",
    )
