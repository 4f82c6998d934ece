"""The safetensors file ends before its tensors do.

Meaning
    The header gives the position of each tensor; the file ends before the last of them, or even within its header.

Why it matters
    safetensors rejects the whole file, although the tensors before the cut are there.

Symptoms
    Error while deserializing header: incomplete metadata, file not fully covered
    Error while deserializing header: invalid header length
    Error while deserializing header: MetadataIncompleteBuffer

Detection
    Eight bytes, the header's length and the end of the last tensor together exceed the length of the file.

Repair
    Download or copy the file again. If there is no other copy, ``ckptdoctor salvage FILE`` recovers every tensor before
    the cut; it is offered only if there are such tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Container, NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, format_of, notes_of, problems
from ckptdoctor.rules.kit.refusals import HEADER
from ckptdoctor.rules.messages import AGAIN, CHECK, Message
from ckptdoctor.rules.when import noticed

FORMAT = "safetensors"
_MODEL = {"b": T((10,)), "w": T((100,))}
MESSAGES = (
    Message(
        ("InvalidHeaderLength", "invalid header length"),
        "the file ends within its header: the download or the save was cut short",
        (CHECK, AGAIN),
    ),
    Message(
        ("MetadataIncompleteBuffer", "file not fully covered"),
        "the file does not have the length that its header gives: it was cut short or, less often, something "
        "was appended to it",
        (CHECK, AGAIN),
        also=("F008",),
    ),
)
SICK = (
    Example(
        "a safetensors file without its last bytes", _MODEL, FORMAT, ".safetensors", damage=lambda data: data[:-10]
    ),
    Example("half of a safetensors header", _MODEL, FORMAT, ".safetensors", damage=lambda data: data[:60]),
)
HEALTHY = (Example("a complete safetensors file", _MODEL, FORMAT, ".safetensors", metadata={"format": "pt"}),)


@rule("F007", "truncated-safetensors", Severity.ERROR, when=noticed)
def truncated_safetensors(subject: Noted) -> Iterator[Problem]:
    """Report a safetensors file without its last bytes."""
    if format_of(subject) == FORMAT:
        yield from problems(
            notes_of(subject, NoteKind.TRUNCATED),
            otherwise="the file ends before its tensors do",
            cause="An interrupted download or copy, or a full disk.",
            torch_says=(HEADER + _refusal(subject),),
            advice=lambda note: f"Download or copy it again and compare the sizes. {note.guidance}".rstrip(),
        )


def _refusal(subject: Noted) -> str:
    """Return what safetensors says, which depends on whether the header itself is cut."""
    if isinstance(subject, Container) and len(subject.head) >= 8:
        header = int.from_bytes(subject.head[:8], "little")
        if 8 + header > subject.size:
            return "invalid header length"
    return "incomplete metadata, file not fully covered"
