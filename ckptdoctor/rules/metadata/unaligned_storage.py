"""The values are not aligned in the file, which makes memory mapping slow.

Meaning
    torch begins every record of an archive at a multiple of 64 bytes, and safetensors its values at a multiple of 8. In
    this file they do not: the archive was packed again by another program (``zip``, ``zipfile``), or the header was
    written without its padding.

Why it matters
    Values can be used in place only if they are aligned. Otherwise a reader that maps the file has to copy them, reads
    them more slowly, or fails on some processors.

Symptoms
    Nothing.

Detection
    The offset of the first record of an archive, and of the first value after a header.

Repair
    ``ckptdoctor fix FILE --select M978`` writes the file with the right alignment. Safe: no value changes.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator

from ckptdoctor.checkpoint import Container, NoteKind
from ckptdoctor.checkpoint.first_bytes import first_value
from ckptdoctor.edits import Convert, Edit, Fix, Retag, Safety, SetSuffix
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T, repacked
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.when import unaligned_values

# where each format's own writer begins values
_ALIGNMENT = {"torch zip": 64, "safetensors": 8}
# edits that change nothing but let the file be laid out anew
_LAID_OUT: dict[str, Edit] = {"torch zip": Retag("cpu", devices=()), "safetensors": Convert("safetensors")}
# what keeps the file from being written again
_BROKEN = (
    *(NoteKind.ZIP_AMBIGUOUS, NoteKind.ZIP_DAMAGED, NoteKind.ZIP_UNUSUAL, NoteKind.TRUNCATED, NoteKind.TRAILING_BYTES),
    *(NoteKind.HEADER_INVALID, NoteKind.OFFSETS_INVALID, NoteKind.DUPLICATE_KEY),
)


def _unpadded(data: bytes) -> bytes:
    """Return the file without the blanks behind its header."""
    length = int.from_bytes(data[:8], "little")
    text = data[8 : 8 + length].rstrip()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


SICK = (
    Example("an archive packed again", {"w": T((300,)), "b": T((5,))}, damage=repacked()),
    Example(
        "a header without padding",
        {"weight": T((300,))},
        "safetensors",
        ".safetensors",
        metadata={"format": "pt"},
        damage=_unpadded,
    ),
)
HEALTHY = (
    Example("an archive that torch wrote", {"w": T((300,)), "b": T((5,))}),
    Example(
        "a file that safetensors wrote", {"weight": T((300,))}, "safetensors", ".safetensors", metadata={"format": "pt"}
    ),
)


@rule("M978", "unaligned-storage", Severity.INFO, when=unaligned_values)
def unaligned_storage(container: Container) -> Iterator[Problem]:
    """Report values at odd places."""
    alignment = _ALIGNMENT.get(container.format)
    start = first_value(container) if container.readable else None
    if alignment is None or start is None or start % alignment == 0:
        return
    library = container.format.split()[0]
    yield Problem(
        message=f"its contents begin at byte {start:,}: {library} begins them at multiples of {alignment}",
        cause="The file was packed again by another program, or its header has no padding. Mapping it requires copies.",
        location=Location(offset=start),
        fix=_fix(container, f"align the file as {library} does, to multiples of {alignment} bytes"),
    )


def _fix(container: Container, title: str) -> Fix | None:
    """Return the fix that lays the same contents out again.

    It sets the suffix that the file already has, so that the repair says that all of the file changes.
    """
    suffix = os.path.splitext(container.path)[1]
    edit = _LAID_OUT.get(container.format)
    if edit is None or not suffix or any(note.kind in _BROKEN for note in container.notes):
        return None
    return Fix(title, (edit, SetSuffix(suffix)), Safety.SAFE, "--select M978")
