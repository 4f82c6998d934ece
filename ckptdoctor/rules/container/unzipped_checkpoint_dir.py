"""This is a file of ``torch.save`` that was unpacked into a folder.

Meaning
    Such a file is a zip archive, and browsers (Safari) and archivers unpack what they take for one. The folder has
    ``data.pkl``, ``version`` and the values in ``data/``.

Why it matters
    Nothing is lost, but torch loads files, not folders.

Symptoms
    IsADirectoryError: [Errno 21] Is a directory

Detection
    The names in the folder.

Repair
    ``ckptdoctor convert FILE model.pt`` packs it again as torch does: stored, aligned to 64 bytes, under one folder.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Container
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.converting import convert_command
from ckptdoctor.rules.when import unusual_format

_PICKLE = b"\x80\x02}q\x00X\x05\x00\x00\x00epochq\x01K\x03s."
SICK = (
    Example("unpacked here", files={"data.pkl": _PICKLE, "version": b"3\n", "byteorder": b"little"}),
    Example("one folder down", files={"archive/data.pkl": _PICKLE, "archive/version": b"3\n"}),
)
HEALTHY = (Example("still packed", {"epoch": 3}),)


@rule("C103", "unzipped-checkpoint-dir", Severity.ERROR, when=unusual_format)
def unzipped_checkpoint_dir(container: Container) -> Iterator[Problem]:
    """Report an archive that was unpacked."""
    if container.format == "unpacked torch archive":
        yield Problem(
            message="this is a file of torch.save that was unpacked into a folder",
            cause="A browser or an archiver unpacked it, since it is a zip file. torch loads it only packed.",
            torch_says=(f"[Errno 21] Is a directory: '{container.path}'",),
            advice=container.guidance or "convert packs it again:",
            commands=() if container.guidance else (convert_command(container.path, ".pt"),),
        )
