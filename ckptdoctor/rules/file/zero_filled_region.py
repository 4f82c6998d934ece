"""The file, or a long run of it, is zero bytes where values should be.

Meaning
    A download in several parts, a sparse copy or a crash before the disk was written leaves the right length with
    zeros in it. Either the whole file is zero, or whole pages within a tensor are.

Why it matters
    torch mistakes a file of zeros for its oldest format. A hole in a tensor loads silently: the weights there are 0.

Symptoms
    Cannot use ``weights_only=True`` with files saved in the legacy .tar format.
    Error while deserializing header: invalid JSON in header: EOF while parsing a value at line 1 column 0

Detection
    Every byte is zero; or, with ``--deep``, a floating-point storage that is not all zero has 64 KiB or more of zero
    pages. If the file system reports that parts of the file were never written (a sparse file), the storages there are
    read without ``--deep`` too. If the storage's checksum matches, the zeros were saved and nothing is reported; if it
    does not match, it is an error; without checksums it is a warning, since the zeros may be intended.

Repair
    None: the values are not in the file. Download it again.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Container, Extent, FileSource, KeyPath, NoteKind, Storage, show_path
from ckptdoctor.checkpoint.sharing import paths_on
from ckptdoctor.checkpoint.source import READING
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.noticed import Noted, location, notes_of
from ckptdoctor.rules.kit.refusals import HEADER, is_safetensors_name
from ckptdoctor.rules.messages import CHECK, Message, Way
from ckptdoctor.rules.when import any_of, is_sparse, noticed, possible_holes
from ckptdoctor.values.damage import HOLE, PAGE, Damage, Integrity, may_have_holes

TAR = "Cannot use ``weights_only=True`` with files saved in the legacy .tar format."


def _hole(data: bytes) -> bytes:
    """Return the bytes with 128 KiB of zeros from the second page on."""
    start, length = 2 * PAGE, 128 << 10
    return data[:start] + bytes(length) + data[start + length :]


MESSAGES = (
    Message(
        ("legacy .tar format", "filename 'storages' not found"),
        "torch took the file for a tar archive. Few files are: most with this message are only zero bytes, "
        "from an interrupted download or save",
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


@rule("F010", "zero-filled-region", Severity.ERROR, when=any_of(noticed, possible_holes))
def zero_filled_region(subject: Noted) -> Iterator[Problem]:
    """Report zeros where values should be."""
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
            message="the file is all zero bytes",
            cause="A download or a copy reserved the space and never filled it, or the machine crashed while saving.",
            torch_says=(f"{HEADER}invalid JSON in header: EOF while parsing a value",) if safetensors else (TAR,),
            advice="Download or copy it again; the right size does not prove the right contents.",
            location=location(note),
        )


def _holes(checkpoint: Checkpoint, damage: Sequence[Damage], severity: Severity) -> Problem:
    holes = [hole for each in damage for hole in each.holes]
    keys = paths_on(checkpoint, [each.storage for each in damage])
    sure = severity is Severity.ERROR
    return Problem(
        message=(
            f"{sum(hole.length for hole in holes):,} bytes in {_named(keys)} are zero, page after "
            f"page{', and the checksum does not match' if sure else ''}"
        ),
        cause=(
            "A part of the file was never downloaded or never written; torch silently loads zeros there."
            if sure
            else "It looks like a part that was never downloaded. There is no checksum to prove it: the zeros may "
            "be intended (pruned weights, rows that were never trained)."
        ),
        advice="Download or copy the file again and compare.",
        keys=keys,
        location=Location(offset=holes[0].offset, length=holes[0].length),
        severity=severity,
    )


def _named(keys: Sequence[KeyPath]) -> str:
    return f'"{show_path(keys[0])}"' if len(keys) == 1 else wording.plural(len(keys), "tensor")


# What a file system says was never written of a file: the holes of sparse files, without reading them.
#
# Programs that download a file in several parts, and copies of such files, leave a hole where a part is missing. Some
# file systems make holes of zeros that were written, so what lies around one is read and held against its checksum.

_MOST = 4096  # holes of one file that are looked at
_READ = 256 << 20  # bytes that are read to tell whether zeros were meant: what is beyond, --deep reads

_Range = tuple[int, int]  # first byte, and one past the last


def unwritten(checkpoint: Checkpoint) -> tuple[Damage, ...]:
    """Return the damage of the storages in which the file has holes, as a deep examination would find it.

    The file that a packed one was unpacked to has holes where there are zeros, which says nothing.
    """
    if any(note.kind is NoteKind.ARCHIVE_WRAPPED for note in checkpoint.notes):
        return ()
    if os.path.isfile(checkpoint.path) and not is_sparse(checkpoint.path):  # the common case: all bytes are there
        return ()
    files = {each.extent.file: None for each in checkpoint.storages if each.extent is not None}
    holes = {file: found for file in files if (found := holes_in(file))}
    return tuple(_damage(checkpoint, holes)) if holes else ()


def holes_in(path: str) -> tuple[_Range, ...]:
    """Return the ranges of 64 KiB and more of a local file that have no blocks on the disk.

    It is () where nobody can tell.
    """
    seek = getattr(os, "SEEK_HOLE", None)
    if seek is None or not is_sparse(path):
        return ()
    try:
        handle = os.open(path, READING)
    except (OSError, ValueError):  # gone, or not ours to read
        return ()
    try:
        return tuple(_seek_holes(handle, os.fstat(handle).st_size))
    except OSError:  # the file system cannot tell
        return ()
    finally:
        os.close(handle)


def _seek_holes(handle: int, size: int) -> Iterator[_Range]:
    at = 0
    for _ in range(_MOST):
        first = os.lseek(handle, at, os.SEEK_HOLE)
        if first >= size:
            return
        try:
            at = os.lseek(handle, first, os.SEEK_DATA)
        except OSError:  # there is no data behind it
            at = size
        if at - first >= HOLE:
            yield first, at
        if at >= size:
            return


def _damage(checkpoint: Checkpoint, holes: dict[str, tuple[_Range, ...]]) -> Iterator[Damage]:
    from ckptdoctor.values.storage_damage import scanned  # few files are sparse

    left = _READ
    for storage, extent in _suspects(checkpoint, holes):
        left -= extent.length
        if left < 0:
            return
        try:
            with FileSource(extent.file) as source:
                yield from scanned(storage, extent, source.read)
        except CkptDoctorError:  # it has changed meanwhile: a deep examination says so
            return


def _suspects(checkpoint: Checkpoint, holes: dict[str, tuple[_Range, ...]]) -> Iterator[tuple[Storage, Extent]]:
    for storage in checkpoint.storages:
        extent = storage.extent
        if extent is None or storage.compressed or extent.length < HOLE or not may_have_holes(storage):
            continue
        ranges = holes.get(extent.file, ())
        index = max(0, bisect_left(ranges, (extent.offset, 0)) - 1)
        for first, last in ranges[index:]:
            if first >= extent.offset + extent.length:
                break
            if min(last, extent.offset + extent.length) - max(first, extent.offset) >= HOLE:
                yield storage, extent
                break
