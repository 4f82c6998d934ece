"""The values are stored in big-endian byte order.

Meaning
    The archive's ``byteorder`` record is "big": it was saved on a big-endian machine, such as IBM Z.

Why it matters
    ``torch.load`` swaps the bytes and gives the right values; other readers may take them as they are and give wrong
    ones.

Symptoms
    Nothing, or meaningless values.

Detection
    The ``byteorder`` record is read.

Repair
    Load it with torch on any machine and save it again, or convert it to safetensors with ``ckptdoctor convert``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T, repacked
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, notes_of, problems
from ckptdoctor.rules.messages import CHECK, Message
from ckptdoctor.rules.when import noticed

MESSAGES = (
    Message(
        ("storage has wrong size: expected",),
        "a storage's length is invalid: the file is damaged, or was written with the other byte order",
        (CHECK,),
        then=r"-?\d{1,30}got-?\d{1,30}",
        also=("F006", "F014"),
    ),
)
SICK = (Example("saved as big-endian", {"w": T((3,))}, damage=repacked("/byteorder", b"big")),)
HEALTHY = (Example("saved as little-endian", {"w": T((3,))}),)


@rule("C113", "big-endian-storage", Severity.WARNING, when=noticed)
def big_endian_storage(subject: Noted) -> Iterator[Problem]:
    """Report values in big-endian order."""
    yield from problems(
        notes_of(subject, NoteKind.BIG_ENDIAN),
        otherwise="the values are stored in big-endian byte order",
        cause="torch.load swaps them; other readers may take them as they are and give wrong values.",
        advice="Load it with torch.load and save it again, or convert it to safetensors: ckptdoctor convert.",
    )
