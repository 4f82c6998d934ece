"""More bytes follow the end of the checkpoint.

Meaning
    The file is longer than its contents: a download that was resumed at the wrong place, two files joined, or
    something appended.

Why it matters
    safetensors rejects the file, with the same message as for a truncated one. torch reads archives from their end
    record and ignores anything after it, so there it is only info.

Symptoms
    Error while deserializing header: incomplete metadata, file not fully covered

Detection
    safetensors: the file is longer than eight bytes, the header and the last tensor. Others: bytes after the end.

Repair
    ``ckptdoctor fix FILE --select F008 --unsafe-fixes`` cuts a safetensors file where its tensors end. Unsafe: the
    extra bytes may be useful to you, and the tensors themselves may be wrong if the download was joined badly.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Note, NoteKind
from ckptdoctor.edits import Fix, Safety, Truncate
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, format_of, location, notes_of, sentence
from ckptdoctor.rules.kit.refusals import HEADER
from ckptdoctor.rules.when import noticed

_MODEL = {"b": T((10,)), "w": T((100,))}
SICK = (
    Example(
        "ten bytes too many",
        _MODEL,
        "safetensors",
        ".safetensors",
        metadata={"format": "pt"},
        damage=lambda data: data + b"0123456789",
    ),
)
HEALTHY = (Example("not a byte too many", _MODEL, "safetensors", ".safetensors", metadata={"format": "pt"}),)


@rule("F008", "trailing-bytes", Severity.ERROR, when=noticed)
def trailing_bytes(subject: Noted) -> Iterator[Problem]:
    """Report bytes after the end."""
    for note in notes_of(subject, NoteKind.TRAILING_BYTES):
        if format_of(subject) == "safetensors":
            yield _refused(note, _cut(note))
        elif note.member is not None and note.member.lower().endswith(".safetensors"):  # one of a folder's files
            yield _refused(note, None)
        else:
            yield Problem(
                message=sentence(note, "bytes follow the end of the checkpoint"),
                cause="Something was appended, or a download was resumed at the wrong place.",
                location=location(note),
                severity=Severity.INFO,
            )


def _cut(note: Note) -> Fix | None:
    if note.offset is None:
        return None
    title = f"cut the file after {note.offset:,} bytes, where the last tensor ends"
    return Fix(title, (Truncate(note.offset),), Safety.UNSAFE, "--select F008")


def _refused(note: Note, fix: Fix | None) -> Problem:
    way = "" if fix is not None else " Or cut that file itself, with --select F008 --unsafe-fixes."
    return Problem(
        message=sentence(note, "bytes follow the end of the last tensor"),
        cause="A download was resumed at the wrong place, or something was appended; safetensors rejects the file.",
        torch_says=(f"{HEADER}incomplete metadata, file not fully covered",),
        advice="Download it again if you can: after a badly resumed download the tensors may be wrong as well." + way,
        location=location(note),
        fix=fix,
    )
