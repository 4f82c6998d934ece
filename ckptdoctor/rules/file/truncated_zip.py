"""The file is the beginning of a torch archive: its end, with the directory of the records, is missing.

Meaning
    A torch checkpoint is a zip archive, and a zip archive has its directory at the end. The file begins like one but
    was cut off: an interrupted download or copy, a full disk, a job killed while saving, or several processes that
    wrote one path at once.

Why it matters
    torch cannot find any record without the directory, although most weights may still be in the file.

Symptoms
    PytorchStreamReader failed reading zip archive: failed finding central directory

Detection
    The file begins with ``PK\\3\\4`` and has no end record in its last 64 KiB.

Repair
    Copy or download the file again, or use the checkpoint saved before it. If there is no other copy, ``ckptdoctor
    salvage FILE`` recovers every tensor before the cut, each verified by its own checksum; it is offered only if there
    are such tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, format_of, notes_of, problems
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.when import noticed

FORMAT = "torch zip"
_AGAIN = "Copy or download it again and compare the sizes, or use the checkpoint saved before it."
TORCH_SAYS = "PytorchStreamReader failed reading zip archive: failed finding central directory"
_WAYS = (
    Way("copy or download it again, or see what is left", "ckptdoctor check FILE"),
    Way("if there is no other copy, recover what is intact", "ckptdoctor salvage FILE"),
)
MESSAGES = (
    Message(
        ("failed finding central directory",),
        "the archive has no end: the download or the save was cut short, or several processes wrote the same file",
        _WAYS,
    ),
    Message(
        ("[Errno 22] Invalid argument",),
        "torch looked for the end of the archive and found none: the file was cut short",
        _WAYS,
        near=("torch/serialization", "torch\\serialization", "PyTorchFileReader"),
    ),
)
SICK = (
    Example("half of an archive", {"w": T((40_000,))}, damage=lambda data: data[: len(data) // 2]),
    Example("an archive without its last bytes", {"w": T((40_000,))}, damage=lambda data: data[:-20]),
)
HEALTHY = (Example("a complete archive", {"w": T((100,))}),)


@rule("F005", "truncated-zip", Severity.ERROR, when=noticed)
def truncated_zip(subject: Noted) -> Iterator[Problem]:
    """Report a torch archive without its end."""
    if format_of(subject) == FORMAT:
        yield from problems(
            notes_of(subject, NoteKind.TRUNCATED),
            otherwise="the archive was cut off: its end is missing",
            cause="An interrupted download, copy or save, a full disk, or several processes that wrote one path.",
            torch_says=(TORCH_SAYS,),
            advice=lambda note: f"{_AGAIN} {note.guidance}".rstrip(),
        )
