"""A key appears twice in one dict, so that one of the two values is lost when loading.

Meaning
    No dict has a key twice, so no pickler writes that: the file was edited, joined, or made by another program.

Why it matters
    The last value wins when torch loads it; other readers may take the first.

Symptoms
    Nothing: one value is silently lost.

Detection
    The keys of every dict, and the names in a safetensors header, are compared.

Repair
    None: the file does not show which of the two is right.
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
        "one name for two tensors",
        {"alpha": T((2,)), "betas": T((2,))},
        "torch legacy",
        damage=lambda data: data.replace(b"betas", b"alpha"),
    ),
)
HEALTHY = (Example("a name for each tensor", {"alpha": T((2,)), "betas": T((2,))}, "torch legacy"),)


@rule("F016", "duplicate-key", Severity.WARNING, when=noticed)
def duplicate_key(subject: Noted) -> Iterator[Problem]:
    """Report one key with two values."""
    yield from problems(
        notes_of(subject, NoteKind.DUPLICATE_KEY),
        otherwise="a key appears twice in one dict",
        cause="torch keeps the last value, other readers may keep the first. No pickler writes a key twice.",
        advice="Find out which value is right; the file does not show it.",
    )
