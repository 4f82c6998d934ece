"""A storage is missing, or does not have the length that the checkpoint gives.

Meaning
    The pickle gives the number of elements of each storage. The storage's record in the archive is missing, shorter or
    longer, encrypted, or compressed in a way that torch does not read: the archive was edited or repacked, a header is
    damaged, or the pickle belongs to another archive.

Why it matters
    torch refuses to read it, or with ``mmap=True`` shows the bytes of the neighbour as values.

Symptoms
    PytorchStreamReader failed locating file data/0: file not found
    record size (100 bytes) does not match expected size (20000 bytes = 20000 elements * 1 bytes/element) for dtype Byte
    PytorchStreamReader failed reading file data/0: invalid header or archive is corrupted
    PytorchStreamReader failed retrieving file meta-data for data/0: unsupported encryption

Detection
    The length of each record is compared with the length that the storage must have.

Repair
    None: use another copy of the file. The tensors on other storages are intact: ``ckptdoctor salvage FILE`` recovers
    them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, NoteKind, Storage
from ckptdoctor.checkpoint.notes import UNREADABLE
from ckptdoctor.checkpoint.sharing import paths_on
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, format_of, location, notes_of, sentence
from ckptdoctor.rules.kit.recovering import salvaged
from ckptdoctor.rules.messages import CHECK, DEEP, Message
from ckptdoctor.rules.when import noticed
from ckptdoctor.wording import beyond

MESSAGES = (
    Message(
        ("invalid header or archive is corrupted",),
        "one record of the archive is damaged, or does not have its tensor's length",
        (CHECK, DEEP),
    ),
    Message(
        ("failed locating file",),
        "the archive lacks a record that a checkpoint must have ({member})",
        (CHECK,),
        then=r"(?P<member>[\w./-]{1,200}?)(?=:|$|\.?\s)",
        also=("C102", "F014"),
    ),
)
SICK = (
    Example("a record under another name", {"w": T((42,))}, damage=lambda data: data.replace(b"/data/0", b"/data/7")),
    Example(
        "a record shorter than announced",
        {"w": T((42,), storage_size=43)},
        damage=lambda data: data.replace(b"cpuq\x06K\x2b", b"cpuq\x06K\x2c"),
    ),
)
HEALTHY = (Example("every storage in its place", {"w": T((42,), storage_size=43)}),)


@rule("F011", "storage-size-mismatch", Severity.ERROR, when=noticed)
def storage_size_mismatch(subject: Noted) -> Iterator[Problem]:
    """Report storages whose bytes are missing, or too many or too few."""
    notes = notes_of(subject, NoteKind.STORAGE_MISSING, NoteKind.STORAGE_SIZE)
    if not notes:
        return
    storages = _wrong(subject) if isinstance(subject, Checkpoint) else []
    more = beyond(len(notes) - 1, before=", and ")
    keys = paths_on(subject, storages) if isinstance(subject, Checkpoint) else ()
    around = subject.container if isinstance(subject, Checkpoint) else None
    twice = around is not None and bool(notes_of(around, NoteKind.ZIP_AMBIGUOUS))  # which is meant, nobody knows
    known = UNREADABLE not in notes[0].message  # why torch rejects it, then
    others = isinstance(subject, Checkpoint) and len(keys) < len(subject.tensors) and not twice
    path = salvaged(subject, storages) if isinstance(subject, Checkpoint) and others else None
    yield Problem(
        message=f"{sentence(notes[0], 'a storage does not have the length that it should')}{more}",
        cause="The archive was edited or repacked, or a header is damaged; with mmap=True torch may show other bytes.",
        torch_says=tuple(_line(storage) for storage in storages[:1] if format_of(subject) == "torch zip" and known),
        advice="Use another copy of the file." + (" Recover the tensors on other storages:" if path else ""),
        keys=keys,
        commands=(f"ckptdoctor salvage {path}",) if path else (),
        location=location(notes[0]),
    )


def _wrong(checkpoint: Checkpoint) -> list[Storage]:
    return [
        storage
        for storage in checkpoint.storages
        if storage.extent is None or (storage.extent.length != storage.nbytes and not storage.compressed)
    ]


def _line(storage: Storage) -> str:
    if storage.extent is None:
        return f"PytorchStreamReader failed locating file data/{storage.key}: file not found."
    return (
        f"record size ({storage.extent.length} bytes) does not match expected size "
        f"({storage.nbytes} bytes = {storage.nbytes} elements * 1 bytes/element) for dtype Byte"
    )
