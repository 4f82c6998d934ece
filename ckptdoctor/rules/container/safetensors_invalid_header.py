"""safetensors rejects the header of the file.

Meaning
    The header is JSON with each tensor's dtype, shape and offsets. This one is broken, or has something that the format
    does not allow: an unknown dtype, numbers with a fraction, a field twice. M972 is about metadata.

Why it matters
    safetensors rejects the whole file, and its message gives a column of the JSON rather than a reason.

Symptoms
    Error while deserializing header: invalid JSON in header: …
    Error while deserializing header: InvalidHeaderDeserialization

Detection
    The header is read as strictly as safetensors itself reads it, and the entry at fault is named.

Repair
    None yet: write the file again with ``safetensors.torch.save_file``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.facts.reader_notes import metadata_notes
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, notes_of, problems
from ckptdoctor.rules.kit.refusals import HEADER
from ckptdoctor.rules.messages import CHECK, SAFE, Message
from ckptdoctor.rules.when import noticed

_MODEL = {"w": T((3,))}
MESSAGES = (
    Message(
        ("InvalidHeaderDeserialization", "invalid JSON in header"),
        "the header is not the JSON that safetensors requires: the writer was wrong, or the file has no data "
        "or only zero bytes",
        (CHECK, SAFE),
        also=("F010", "L903"),
        general=2,
    ),
    Message(
        ("InvalidHeaderStart", "invalid start character in header", "InvalidHeader:", "invalid UTF-8 in header"),
        "the header is not the JSON object that safetensors requires: the file has another format, or is damaged",
        (CHECK,),
        also=("C101", "F010"),
    ),
)
SICK = (
    Example(
        "an unknown dtype",
        _MODEL,
        "safetensors",
        ".safetensors",
        metadata={"format": "pt"},
        damage=lambda data: data.replace(b'"F32"', b'"f32"'),
    ),
)
HEALTHY = (Example("a correct header", _MODEL, "safetensors", ".safetensors", metadata={"format": "pt"}),)


@rule("C110", "safetensors-invalid-header", Severity.ERROR, when=noticed)
def safetensors_invalid_header(subject: Noted) -> Iterator[Problem]:
    """Report a header that safetensors refuses."""
    notes = notes_of(subject, NoteKind.HEADER_INVALID)
    of_metadata = metadata_notes(notes)  # M972 speaks of those
    yield from problems(
        [note for note in notes if note not in of_metadata],
        otherwise="safetensors rejects the header",
        cause="The header was written by a program that does not follow the format, or it was damaged.",
        torch_says=(f"{HEADER}invalid JSON in header",),
        advice="Write the file again with safetensors.torch.save_file.",
    )
