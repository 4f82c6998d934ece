"""The archive, or the pickle in it, is built so that different readers see different things.

Meaning
    Two records have the same name, the directory and the records disagree, records are compressed or marked as
    encrypted, the pickle calls something and discards the result, or continues after its end. ``torch.save`` writes
    none of that. Files have evaded scanners with each of these: the scanner reads one thing and torch loads another.

Why it matters
    What a scanner, ``unzip`` or Python's ``zipfile`` shows need not be what torch loads; torch rejects some of these
    files, and loads others with wrong values.

Symptoms
    Nothing, or: PytorchStreamReader failed …

Detection
    The central directory is compared with every record's own header, and names are compared whatever their case.

Repair
    Download the file from its source again. Load it only with ``weights_only=True``. Of an archive that is only
    unusual, ``ckptdoctor convert`` writes the contents as ``torch.save`` would.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Note, NoteKind
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
        "two records with the same name",
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
        cause="torch.save does not write this. A scanner or unzip may show something other than what torch loads.",
        advice="Download the file from its source again; load it only with weights_only=True.",
    )
    yield from problems(
        _unusual_notes(subject),
        otherwise="torch does not write archives like this",
        cause="torch.save does not write this: torch rejects such a file, or reads it differently from other programs.",
        advice=f"Download the file from its source again{_CONVERT if _is_whole(subject) else '.'}",
    )
    yield from problems(
        notes_of(subject, NoteKind.PICKLE_HIDDEN_CALL),
        otherwise="the pickle makes a call and discards the result",
        cause="Loading it with weights_only=False makes the call, although nothing of it shows in the contents.",
        advice="Load it only with weights_only=True.",
    )


_CONVERT = ". ckptdoctor convert writes what is in it as torch.save would."


def _is_whole(subject: Noted) -> bool:
    """Return whether all that is in the archive can be read, whatever torch says."""
    return isinstance(subject, Checkpoint) and not notes_of(subject, NoteKind.STORAGE_MISSING, NoteKind.STORAGE_SIZE)


def _unusual_notes(subject: Noted) -> list[Note]:
    """Return what else is unusual about the archive."""
    of_version = version_notes(subject)
    return [note for note in notes_of(subject, NoteKind.ZIP_UNUSUAL) if note not in of_version]
