"""The archive, or the pickle in it, is built so that different readers see different things.

What it means
    Two records have one name, the directory and the records disagree, records are compressed or marked as encrypted,
    the pickle calls something and throws the result away, or goes on after its end. ``torch.save`` writes none of
    that. Scanners have been passed by each of these: they look at one thing and torch loads another.

Why it matters
    What a scanner, ``unzip`` or Python's ``zipfile`` shows need not be what torch loads; some of these files torch
    refuses, some it loads with wrong values.

What you see
    Nothing, or: PytorchStreamReader failed …

How it is found
    The central directory is compared with every record's own header, and names are compared whatever their case.

Repair
    None yet: take the file from its source again. Load it with ``weights_only=True`` only.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Note, NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, notes_of, problems, version_notes
from ckptdoctor.rules.when import noticed


def _encrypted(data: bytes) -> bytes:
    """Return the archive with the encryption bit set on the first record of its directory (APPNOTE.TXT 4.4.4)."""
    flags = data.index(b"PK\x01\x02") + 8
    return data[:flags] + bytes([data[flags] | 1]) + data[flags + 1 :]


SICK = (
    Example(
        "two records of one name",
        {"v": T((3,)), "w": T((3,))},
        damage=lambda data: data.replace(b"/data/1", b"/data/0"),
    ),
    Example("a record marked as encrypted", {"w": T((3,))}, damage=_encrypted),
)
HEALTHY = (Example("an archive that torch wrote", {"w": T((3,))}),)


@rule("P207", "zip-evasion", Severity.WARNING, when=noticed)
def zip_evasion(subject: Noted) -> Iterator[Problem]:
    """Report what readers would see differently."""
    yield from problems(
        notes_of(subject, NoteKind.ZIP_AMBIGUOUS),
        otherwise="readers disagree on what is in this archive",
        cause="torch.save does not write this. What a scanner or unzip shows need not be what torch loads.",
        advice="Take the file from its source again; load it with weights_only=True only.",
    )
    yield from problems(
        _unusual_notes(subject),
        otherwise="the archive is not as torch writes it",
        cause="torch.save does not write this: torch refuses such a file, or reads something else than others.",
        advice="Take the file from its source again, or load it where it loads and save it with torch.save.",
    )
    yield from problems(
        notes_of(subject, NoteKind.PICKLE_HIDDEN_CALL),
        otherwise="the pickle does something whose result it throws away",
        cause="Loading it with weights_only=False makes the call, although nothing of it shows in the contents.",
        advice="Load it with weights_only=True only.",
    )


def _unusual_notes(subject: Noted) -> list[Note]:
    """Return what else is unusual about the archive."""
    of_version = version_notes(subject)
    return [note for note in notes_of(subject, NoteKind.ZIP_UNUSUAL) if note not in of_version]
