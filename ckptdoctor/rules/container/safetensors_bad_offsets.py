"""The offsets in a safetensors header overlap, leave gaps, or have the wrong length.

Meaning
    The tensors of a safetensors file follow one another, each exactly as long as its dtype and shape require. A writer
    that lets tied weights share bytes, pads between tensors, or computes a length wrongly breaks that.

Why it matters
    safetensors rejects the whole file. A less strict reader shows bytes of one tensor in another.

Symptoms
    Error while deserializing header: invalid offset for tensor `w`
    Error while deserializing header: invalid shape, data type, or offset for tensor

Detection
    The ranges are sorted; each must begin where the one before it ends and be as long as dtype × shape.

Repair
    None yet: write the file again with ``safetensors.torch.save_file``; tied weights need ``save_model`` or a copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, notes_of, problems
from ckptdoctor.rules.messages import CHECK, SAFE, Message
from ckptdoctor.rules.when import noticed

_MODEL = {"a": T((2,)), "b": T((2,))}
MESSAGES = (
    Message(
        ("InvalidOffset", "invalid offset for tensor"),
        "tensors overlap or leave gaps in the file (for example tied weights written once), which safetensors rejects",
        (CHECK, SAFE),
    ),
    Message(
        ("TensorInvalidInfo", "invalid shape, data type, or offset"),
        "the header gives a tensor a length that does not match its shape and dtype",
        (CHECK,),
        also=("F015",),
    ),
)
SICK = (
    Example(
        "two tensors on the same bytes",
        _MODEL,
        "safetensors",
        ".safetensors",
        metadata={"format": "pt"},
        damage=lambda data: data.replace(b"[8,16]", b"[0, 8]")[:-8],
    ),
    Example(
        "a length that does not fit the shape",
        _MODEL,
        "safetensors",
        ".safetensors",
        metadata={"format": "pt"},
        damage=lambda data: data.replace(b'"shape":[2]', b'"shape":[3]', 1),
    ),
)
HEALTHY = (Example("one after another", _MODEL, "safetensors", ".safetensors", metadata={"format": "pt"}),)


@rule("C111", "safetensors-bad-offsets", Severity.ERROR, when=noticed)
def safetensors_bad_offsets(subject: Noted) -> Iterator[Problem]:
    """Report ranges that overlap, leave holes or do not fit the shape."""
    yield from problems(
        notes_of(subject, NoteKind.OFFSETS_INVALID),
        otherwise="the offsets of the tensors overlap, leave gaps, or have the wrong length",
        cause="The file was written by a program that does not follow the format; safetensors rejects the whole file.",
        advice="Write it again with safetensors.torch.save_file; tied weights need save_model or a copy.",
    )
