"""The same weights are next to this file in another container, and the two may differ.

Meaning
    ``pytorch_model.bin`` and ``model.safetensors`` (or the like) are both in the folder. One may be left from an
    earlier save or conversion.

Why it matters
    Loaders pick one and ignore the other: transformers, diffusers and peft take safetensors if it exists, older
    versions and other programs the ``.bin``. If you fine-tuned into one file and load the other, you get stale weights.

Symptoms
    Nothing: the other weights are used.

Detection
    The names in the folder. Both files may be intended (many repositories offer both), so this is only info. It is a
    warning where their lengths differ by more than a tenth, so that they cannot hold the same tensors.

Repair
    None: decide which one is right, and delete or move the other. ``ckptdoctor diff A B`` compares them.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.siblings import Sibling, folder_of
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.when import weights_of_torch_beside
from ckptdoctor.shell import quote

# names that one library takes for the same weights, in the order in which it prefers them
_TWINS = (
    ("model.safetensors", "pytorch_model.bin"),
    ("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.bin"),
    ("adapter_model.safetensors", "adapter_model.bin"),
)
_SLACK = 1 << 20  # bytes by which headers may differ
_MODEL = {"w": T((300_000,))}


def _other(size: int) -> dict[str, bytes]:
    """Return a safetensors file of one tensor of so many bytes."""
    header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
    return {"model.safetensors": len(header).to_bytes(8, "little") + header + bytes(size)}


SICK = (
    Example("two of one model", _MODEL, name="pytorch_model.bin", beside=_other(1_200_100)),
    Example("two that differ", _MODEL, name="pytorch_model.bin", beside=_other(3_600_000)),
)
HEALTHY = (
    Example("one file", _MODEL, name="pytorch_model.bin"),
    Example("files of other things", _MODEL, name="pytorch_model.bin", beside={"optimizer.bin": bytes(100)}),
)


@rule("C115", "mixed-duplicate-weights", Severity.INFO, when=weights_of_torch_beside)
def mixed_duplicate_weights(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report a second file that loaders take for the same weights."""
    folder = folder_of(checkpoint.path)
    own = folder.own
    if own is None:
        return
    for twins in _TWINS:
        if own.name not in twins:
            continue
        other = folder.file(next(name for name in twins if name != own.name))
        if other is not None:
            yield _problem(checkpoint.path, own, other, twins[0])


def _problem(path: str, own: Sibling, other: Sibling, preferred: str) -> Problem:
    apart = abs(own.size - other.size) > max(own.size, other.size) // 10 + _SLACK
    newer = own.name if own.mtime_ns > other.mtime_ns else other.name
    sizes = f" of {other.size:,} bytes ({own.size:,} here)" if apart else ""
    beside = quote(os.path.join(os.path.dirname(path), other.name))
    return Problem(
        message=f"{other.name}{sizes} is next to it, for the same weights",
        cause=f"Loaders take one of the two, most of them {preferred}. The newer one is {newer}.",
        advice=(f"Compare them, and keep the right one: ckptdoctor check {quote(path)} --like {beside}"),
        severity=Severity.WARNING if apart else Severity.INFO,
    )
