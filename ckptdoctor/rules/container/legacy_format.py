"""The file is in the format that torch wrote before version 1.6.

Meaning
    It is a run of pickles followed by the storages, without a directory or checksums. torch still reads it, and
    writes it with ``_use_new_zipfile_serialization=False``.

Why it matters
    It cannot be memory-mapped, so loading one tensor reads the whole file; damage in it cannot be detected; other
    readers often do not know it. Storages without a type (the unsigned integers of 16, 32 and 64 bits, and floats of 8
    bits and fewer) are written by torch in this format but cannot be read again: then it is an error.

Symptoms
    mmap can only be used with files saved with `torch.save(FILE, _use_new_zipfile_serialization=True), please
    torch.save your checkpoint with this option in order to use mmap.

    AttributeError: type object 'torch.storage.UntypedStorage' has no attribute 'dtype'

Detection
    The file begins with the pickle of the magic number 0x1950a86a20f9469cfc6c. If it names ``UntypedStorage``, torch
    rejects it.

Repair
    ``ckptdoctor fix FILE --select C105`` writes the same contents as the archive that ``torch.save`` writes today.
    Safe: no value changes. A truncated file stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, NoteKind
from ckptdoctor.edits import Convert, Fix, Safety
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.messages import SAFE, Message, Way
from ckptdoctor.rules.when import format_is

MESSAGES = (
    Message(
        ("mmap can only be used with files saved with",),
        "the file is in the format from before torch 1.6, which cannot be mapped into memory",
        (SAFE, Way("or load it with", "torch.load(path)")),
    ),
)
SICK = (
    Example("an old format", {"w": T((3,))}, "torch legacy"),
    Example("a storage without a type", {"w": T((3,), "uint16")}, "torch legacy"),
)
HEALTHY = (Example("the format since torch 1.6", {"w": T((3,))}),)

# what keeps the contents from being copied whole
INCOMPLETE = (NoteKind.TRUNCATED, NoteKind.STORAGE_MISSING, NoteKind.STORAGE_SIZE, NoteKind.PICKLE_DAMAGED)
_MODULES = ("torch", "torch.storage")
FIX = Fix("write it as a PyTorch .pt (zip) archive", (Convert("torch zip"),), Safety.SAFE, "--select C105")


@rule("C105", "legacy-format", Severity.INFO, when=format_is("torch legacy"))
def legacy_format(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report the format before torch 1.6."""
    if checkpoint.format == "torch legacy":
        whole = not any(note.kind in INCOMPLETE for note in checkpoint.notes)
        refused = any(each.name == "UntypedStorage" and each.module in _MODULES for each in checkpoint.globals)
        yield _refused(FIX if whole else None) if refused else _outdated(FIX if whole else None)


def _refused(fix: Fix | None) -> Problem:
    return Problem(
        message="this is torch's format from before version 1.6, with storages that torch cannot read from it",
        cause="torch writes unsigned integers of 16 to 64 bits and floats of 8 bits and fewer as storages without a "
        "type, and its reader of this format asks for their type.",
        torch_says=("AttributeError: type object 'torch.storage.UntypedStorage' has no attribute 'dtype'",),
        advice="All values are intact: from a .pt archive, torch loads them." if fix is not None else "",
        fix=fix,
        severity=Severity.ERROR,
    )


def _outdated(fix: Fix | None) -> Problem:
    return Problem(
        message="this is torch's format from before version 1.6",
        cause="It loads, but cannot be memory-mapped, and it has no checksums that would show damage.",
        torch_says=("mmap can only be used with files saved with `torch.save(",),
        fix=fix,
    )
