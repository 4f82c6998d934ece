"""The file, or a long run of it, is zero bytes where values should be.

What it means
    A download in several parts, a sparse copy or a crash before the disk was written leaves the right length with
    zeros in it. Either the whole file is zero, or whole pages within a tensor are.

Why it matters
    A file of zeros is mistaken by torch for its oldest format. A hole in a tensor loads without a word: the weights
    there are 0.

What you see
    Cannot use ``weights_only=True`` with files saved in the legacy .tar format.
    Error while deserializing header: invalid JSON in header: EOF while parsing a value at line 1 column 0

How it is found
    Every byte is zero; or, with ``--deep``, 64 KiB or more of zero pages lie within a floating-point storage that is
    not all zero. Where the file system says that parts of the file were never written (a sparse file), the storages
    there are looked at without ``--deep``, too. Where the storage has a checksum that fits, the zeros were saved like
    that and nothing is said; where it has one that does not fit, it is an error; without checksums it is a warning, for
    it may be meant.

Repair
    None: the values are not in the file. Download it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Container, KeyPath, NoteKind, show_path
from ckptdoctor.facts.aliasing import paths_on
from ckptdoctor.facts.disk_holes import unwritten
from ckptdoctor.facts.integrity import PAGE, Damage, Integrity
from ckptdoctor.facts.notes import Noted, notes_of
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules import wording
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.messages import CHECK, Message, Way
from ckptdoctor.rules.noticed import location
from ckptdoctor.rules.refusals import HEADER, is_safetensors_name
from ckptdoctor.rules.when import any_of, may_have_holes, noticed

TAR = "Cannot use ``weights_only=True`` with files saved in the legacy .tar format."


def _hole(data: bytes) -> bytes:
    """The bytes with 128 KiB of zeros from the second page on."""
    start, length = 2 * PAGE, 128 << 10
    return data[:start] + bytes(length) + data[start + length :]


MESSAGES = (
    Message(
        ("legacy .tar format", "filename 'storages' not found"),
        "torch took the file for a tar archive. Few files are: most that say so are nothing but zero bytes,"
        " from a download or a save that was broken off",
        (CHECK, Way("then", "copy or download it again")),
        also=("C105",),
    ),
)
SICK = (
    Example("nothing but zeros", raw=bytes(10_000)),
    Example("a hole in a tensor", {"w": T((65_536,), value=1.0)}, damage=_hole, deep=True),
    Example(
        "a hole without checksums",
        {"w": T((65_536,), value=1.0)},
        "safetensors",
        ".safetensors",
        metadata={"format": "pt"},
        damage=_hole,
        deep=True,
    ),
)
HEALTHY = (
    Example("a tensor of zeros", {"w": T((65_536,), value=0.0)}, deep=True),
    Example(
        "zeros in safetensors",
        {"w": T((65_536,), value=0.0)},
        "safetensors",
        ".safetensors",
        metadata={"format": "pt"},
        deep=True,
    ),
)


@rule("F010", "zero-filled-region", Severity.ERROR, when=any_of(noticed, may_have_holes))
def zero_filled_region(subject: Noted) -> Iterator[Problem]:
    """Zeros where values should be."""
    if isinstance(subject, (Checkpoint, Integrity)):
        checkpoint = subject.checkpoint if isinstance(subject, Integrity) else subject
        damage = subject.damage if isinstance(subject, Integrity) else unwritten(subject)
        proven = [each for each in damage if each.holes and each.computed is not None]
        suspected = [each for each in damage if each.holes and each.computed is None]
        if proven:
            yield _holes(checkpoint, proven, Severity.ERROR)
        if suspected:
            yield _holes(checkpoint, suspected, Severity.WARNING)
    if isinstance(subject, Integrity):
        return
    for note in notes_of(subject, NoteKind.ZERO_FILLED):
        safetensors = isinstance(subject, Container) and is_safetensors_name(subject)
        yield Problem(
            message="the file is nothing but zero bytes",
            cause="A download or a copy reserved the space and never filled it, or the machine crashed while saving.",
            torch_says=(f"{HEADER}invalid JSON in header: EOF while parsing a value",) if safetensors else (TAR,),
            advice="Download or copy it again; a file of the right size is no proof of the right contents.",
            location=location(note),
        )


def _holes(checkpoint: Checkpoint, damage: Sequence[Damage], severity: Severity) -> Problem:
    holes = [hole for each in damage for hole in each.holes]
    keys = paths_on(checkpoint, [each.storage for each in damage])
    sure = severity is Severity.ERROR
    return Problem(
        message=(
            f"{sum(hole.length for hole in holes):,} bytes in {_named(keys)} are zero, "
            f"page after page{', and the checksum does not fit' if sure else ''}"
        ),
        cause=(
            "A part of the file was never downloaded or never written; torch loads zeros there without a word."
            if sure
            else "It looks like a part that was never downloaded. There is no checksum to prove it: "
            "the zeros may be meant (pruned weights, rows that were never trained)."
        ),
        advice="Download or copy the file again and compare.",
        keys=keys,
        location=Location(offset=holes[0].offset, length=holes[0].length),
        severity=severity,
    )


def _named(keys: Sequence[KeyPath]) -> str:
    return f"“{show_path(keys[0])}”" if len(keys) == 1 else wording.count(len(keys), "tensor")
