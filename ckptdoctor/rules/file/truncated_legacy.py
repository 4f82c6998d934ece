"""The file is the beginning of a checkpoint in torch's old format: the last storages are missing.

Meaning
    Before torch 1.6 checkpoints were a run of pickles followed by the storages, one after another. The file ends before
    its announced storages do.

Why it matters
    torch rejects the whole file, although everything before the cut is there.

Symptoms
    unexpected EOF, expected 10199 more bytes. The file might be corrupted.

Detection
    The pickles announce the storages with their lengths; the file is shorter than that.

Repair
    Copy or download the file again, or use the checkpoint saved before it. If there is no other copy, ``ckptdoctor
    salvage FILE`` recovers every tensor before the cut; it is offered only if there are such tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, format_of, notes_of, problems
from ckptdoctor.rules.messages import CHECK, Message, Way
from ckptdoctor.rules.when import noticed

FORMAT = "torch legacy"
_AGAIN = "Copy or download it again and compare the sizes, or use the checkpoint saved before it."
MESSAGES = (
    Message(
        ("unexpected EOF, expected",),
        "the file, in the format from before torch 1.6, is cut short (bytes missing from one storage on: {bytes})",
        (CHECK, Way("then", "copy or download it again")),
        then=r"(?P<bytes>\d{1,30})morebytes",
    ),
    Message(
        ("pickle data was truncated",),
        "the pickle is cut short: the download or the save was interrupted. No command recovers the rest",
        (CHECK,),
        also=("F014", "F005", "F004"),
    ),
)
SICK = (
    Example(
        "half of a legacy file",
        {"w": T((500,)), "b": T((5,))},
        "torch legacy",
        damage=lambda data: data[: len(data) // 2],
    ),
    Example("a legacy file without its last bytes", {"w": T((500,))}, "torch legacy", damage=lambda data: data[:-20]),
)
HEALTHY = (Example("a complete legacy file", {"w": T((500,))}, "torch legacy"),)


@rule("F006", "truncated-legacy", Severity.ERROR, when=noticed)
def truncated_legacy(subject: Noted) -> Iterator[Problem]:
    """Report a legacy file without its last bytes."""
    if format_of(subject) == FORMAT:
        yield from problems(
            notes_of(subject, NoteKind.TRUNCATED),
            otherwise="the file was cut off: the last storages are missing",
            cause="An interrupted download, copy or save, or a full disk.",
            torch_says=("unexpected EOF, expected",),
            advice=lambda note: f"{_AGAIN} {note.guidance}".rstrip(),
        )
