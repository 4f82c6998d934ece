"""The archive has a version number that torch 2.13 does not know: a newer torch wrote it.

Meaning
    The archive's ``version`` record defines which readers can read it. torch 2.13 reads 1 to 10, and writes 3 for a
    checkpoint. A higher number is that of a later torch, or of a program that is not torch.

Why it matters
    An older torch rejects the whole file, although the tensors in it may be perfectly normal.

Symptoms
    Attempted to read a PyTorch file with version 11, but the maximum supported version for reading is 10. The version
    of your PyTorch installation may be too old, please upgrade PyTorch to latest version to mitigate this issue.

Detection
    The ``version`` record of the archive.

Repair
    None: read it with a newer torch, and save it again there with ``_use_new_zipfile_serialization=False`` or as
    safetensors, for programs with an older torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, location, sentence, version_notes
from ckptdoctor.rules.messages import CHECK, Message, Way
from ckptdoctor.rules.when import noticed


def _of_tomorrow(data: bytes) -> bytes:
    """Return the archive with a version record that says 11.

    It is made with zipfile, because the record changes its length.
    """
    import io
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, b"11\n" if entry.filename.endswith("/version") else old.read(entry))
    return made.getvalue()


MESSAGES = (
    Message(
        ("Attempted to read a PyTorch file with version",),
        "the file was written in version {found} of torch's format; this torch reads up to {known}: it is too old",
        (Way("upgrade torch", "pip install --upgrade torch"), CHECK),
        then=r"(?P<found>\d{1,9}),butthemaximumsupportedversionforreadingis(?P<known>\d{1,9})",
    ),
)
SICK = (Example("saved by a future torch", {"w": T((3,))}, damage=_of_tomorrow),)
HEALTHY = (Example("saved by today's torch", {"w": T((3,))}),)


@rule("C106", "reader-too-old", Severity.WARNING, when=noticed)
def reader_too_old(subject: Noted) -> Iterator[Problem]:
    """Report a version record that torch does not know."""
    for note in version_notes(subject):
        yield Problem(
            message=sentence(note, "the archive has a version that torch does not know"),
            cause="A newer torch wrote it, or a program that is not torch; torch 2.13 reads versions 1 to 10.",
            torch_says=(
                "but the maximum supported version for reading is 10. The version of your PyTorch installation may be",
            ),
            advice="Read it with a newer torch, and save it there as safetensors for programs with an older one.",
            location=location(note),
        )
