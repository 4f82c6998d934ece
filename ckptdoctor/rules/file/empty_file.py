"""The file is empty: zero bytes.

Meaning
    A save was interrupted before its first byte reached the disk, the disk was full, or the file was only created.
    ``torch.save`` empties its target before it writes.

Why it matters
    There is nothing to load or to recover, and torch's message is empty too.

Symptoms
    EOFError
    Ran out of input
    Error while deserializing header: header too small

Detection
    The file has no bytes.

Repair
    None: use the checkpoint saved before this one, or download the file again. Check the space left on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Container, NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import location, notes_of
from ckptdoctor.rules.kit.refusals import HEADER, is_safetensors_name
from ckptdoctor.rules.messages import AGAIN, CHECK, Message, Way, Weight
from ckptdoctor.rules.when import noticed

MESSAGES = (
    Message(
        ("EOFError: Ran out of input", "Ran out of input"),
        "the file is empty: a save that failed, a full disk, or a download that never began",
        (CHECK, Way("then", "go back to the checkpoint before it")),
    ),
    Message(
        ("EOFError",),
        "the file ended before its contents began: it is empty or was cut short",
        (CHECK,),
        then=r"(?!:EOFwhen)",
        also=("F006", "F014"),
        among=("torch.load", "serialization", "pickle"),
        weight=Weight.ECHO,
    ),
    Message(
        ("HeaderTooSmall", "header too small"),
        "the file has fewer than the eight bytes that every safetensors file begins with: it is empty or nearly empty",
        (CHECK, AGAIN),
        also=("C102", "C101", "F007"),
    ),
)
SICK = (
    Example("nothing at all", raw=b""),
    Example("nothing at all in safetensors", raw=b"", suffix=".safetensors"),
)
HEALTHY = (Example("an empty dict", {}),)


@rule("F004", "empty-file", Severity.ERROR, when=noticed)
def empty_file(container: Container) -> Iterator[Problem]:
    """Report zero bytes."""
    for note in notes_of(container, NoteKind.EMPTY):
        yield Problem(
            message="the file is empty",
            cause="A save or a download broke off before the first byte was written, or the disk was full.",
            torch_says=(f"{HEADER}header too small",) if is_safetensors_name(container) else ("EOFError",),
            advice="Use the checkpoint saved before this one, or download the file again; df shows the space left.",
            location=location(note),
        )
