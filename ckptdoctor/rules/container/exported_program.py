"""The file is an exported program: a graph with its weights, not a checkpoint.

Meaning
    ``torch.export.save`` wrote it (``.pt2``), or it was compiled for ExecuTorch (``.pte``).

Why it matters
    Neither ``torch.load`` nor ``torch.jit.load`` reads it. For ``torch.export.load`` or ExecuTorch it is the right
    file.

Symptoms
    PytorchStreamReader failed locating file data.pkl: file not found

Detection
    The archive has an ``archive_format`` record, or the file has ExecuTorch's mark at byte 4.

Repair
    ``ckptdoctor convert FILE model.safetensors`` extracts the weights of a ``.pt2`` without running anything; so does
    ``torch.export.load(FILE).state_dict``, if you trust the file. Those of an ExecuTorch program are packed for the
    device that it was made for.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Container
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.converting import convert_command, with_article
from ckptdoctor.rules.when import unusual_format

_EXPORTED, _EXECUTORCH = "torch.export program", "ExecuTorch program"


def _archive(data: bytes) -> bytes:
    """Return a stored archive with the records by which an exported program is known."""
    import io
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as new:
        new.writestr("model/archive_format", b"pt2")
        new.writestr("model/archive_version", b"0")
        new.writestr("model/models/model.json", b"{}")
    return made.getvalue()


SICK = (
    Example("an exported program", {}, suffix=".pt2", damage=_archive),
    Example("a program for ExecuTorch", raw=b"\x1c\0\0\0ET12" + bytes(range(1, 57)), suffix=".pte"),
)
HEALTHY = (Example("a state dict", {"w": T((3,))}),)


@rule("C109", "exported-program", Severity.ERROR, when=unusual_format)
def exported_program(container: Container) -> Iterator[Problem]:
    """Report a program instead of a state dict."""
    if container.format not in (_EXPORTED, _EXECUTORCH):
        return
    exported = container.format == _EXPORTED
    yield Problem(
        message=f"this is {with_article(container.format)} (a graph with its weights), not a checkpoint",
        cause=(
            "torch.export.save wrote it, and torch.export.load reads it; torch.load does not."
            if exported
            else "It was compiled for a device, and ExecuTorch's runtime loads it; torch.load does not."
        ),
        torch_says=("PytorchStreamReader failed locating file data.pkl: file not found",) if exported else (),
        advice=(
            "convert extracts the weights without running anything:"
            if exported
            else "Look for the checkpoint that it was made from: its weights are packed for the device."
        ),
        commands=(convert_command(container.path),) if exported else (),
    )
