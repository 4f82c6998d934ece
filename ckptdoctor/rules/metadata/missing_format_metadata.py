"""The safetensors file does not name its framework.

Meaning
    ``__metadata__`` has no entry ``format``. ``safetensors.torch.save_file`` writes one only on request
    (``metadata={"format": "pt"}``), and ``save_model`` never does.

Why it matters
    The tensors are fine, but Hugging Face libraries require the entry and reject the file, or fail without it.

Symptoms
    AttributeError: 'NoneType' object has no attribute 'get'
    The safetensors archive passed at … does not contain the valid metadata.

Detection
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
from ckptdoctor.rules.when import unnamed_framework

_MODEL = {"fc.weight": T((2, 2)), "fc.bias": T((2,))}
MESSAGES = (
    Message(
        ("'NoneType' object has no attribute 'get'",),
        "the safetensors file has no metadata, and the loader requires the format in it: save_file writes it "
        "only on request",
        (SAFE, Way("or save it with", 'save_file(tensors, path, metadata=dict(format="pt"))')),
        near=("metadata", "safe_open", "safetensors"),
    ),
    Message(
        ("does not contain a valid metadata", "does not contain the valid metadata"),
        'the safetensors file is not marked as torch\'s ("format": "pt" in its metadata)',
        (SAFE, Way("or save it with", 'save_file(tensors, path, metadata=dict(format="pt"))')),
    ),
)
SICK = (
    Example("no metadata", _MODEL, "safetensors", ".safetensors"),
    Example("other metadata", _MODEL, "safetensors", ".safetensors", metadata={"epoch": "3"}),
)
HEALTHY = (Example("a file for torch", _MODEL, "safetensors", ".safetensors", metadata={"format": "pt"}),)


@rule("M971", "missing-format-metadata", Severity.WARNING, when=unnamed_framework)
def missing_format_metadata(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report metadata without ``format``."""
    if checkpoint.format != "safetensors" or "format" in (checkpoint.metadata or {}):
        return
    yield Problem(
        message=("there is no metadata" if checkpoint.metadata is None else 'the metadata has no entry "format"'),
        cause='Saved without metadata={"format": "pt"}. The tensors are fine, but transformers and others require it.',
        torch_says=("'NoneType' object has no attribute 'get'",) if checkpoint.metadata is None else (),
        fix=Fix('add "format": "pt" to the metadata', (SetMetadata("format", "pt"),), Safety.SAFE, "--select M971"),
    )
