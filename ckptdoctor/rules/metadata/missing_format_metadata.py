"""The safetensors file does not say which framework it is from.

What it means
    ``__metadata__`` has no entry ``format``. ``safetensors.torch.save_file`` writes one only when it is told to
    (``metadata={"format": "pt"}``), and ``save_model`` never does.

Why it matters
    The tensors are fine, but Hugging Face libraries ask for the entry and refuse the file, or fail on its absence.

What you see
    AttributeError: 'NoneType' object has no attribute 'get'
    The safetensors archive passed at … does not contain the valid metadata.

How it is found
    The header of the file.

Repair
    ``ckptdoctor fix FILE --select M971`` adds ``"format": "pt"``. Safe: only the header changes, the tensors are
    copied byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.edits import Fix, Safety, SetMetadata
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.messages import SAFE, Message, Way
from ckptdoctor.rules.when import format_is

_MODEL = {"fc.weight": T((2, 2)), "fc.bias": T((2,))}
MESSAGES = (
    Message(
        ("'NoneType' object has no attribute 'get'",),
        "the safetensors file has no metadata, and the loader asks it for the format: save_file writes none unless told"
        " to",
        (SAFE, Way("or save it with", 'save_file(tensors, path, metadata=dict(format="pt"))')),
        near=("metadata", "safe_open", "safetensors"),
    ),
    Message(
        ("does not contain a valid metadata", "does not contain the valid metadata"),
        'the safetensors file does not say that it is for torch ("format": "pt" in its metadata)',
        (SAFE, Way("or save it with", 'save_file(tensors, path, metadata=dict(format="pt"))')),
    ),
)
SICK = (
    Example("no metadata", _MODEL, "safetensors", ".safetensors"),
    Example("metadata of another kind", _MODEL, "safetensors", ".safetensors", metadata={"epoch": "3"}),
)
HEALTHY = (Example("a file for torch", _MODEL, "safetensors", ".safetensors", metadata={"format": "pt"}),)


@rule("M971", "missing-format-metadata", Severity.WARNING, when=format_is("safetensors"))
def missing_format_metadata(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report metadata without ``format``."""
    if checkpoint.format != "safetensors" or "format" in (checkpoint.metadata or {}):
        return
    yield Problem(
        message=("there is no metadata" if checkpoint.metadata is None else 'the metadata has no entry "format"'),
        cause='Saved without metadata={"format": "pt"}. The tensors are fine, but transformers and others ask for it.',
        torch_says=("'NoneType' object has no attribute 'get'",) if checkpoint.metadata is None else (),
        fix=Fix('add "format": "pt" to the metadata', (SetMetadata("format", "pt"),), Safety.SAFE, "--select M971"),
    )
