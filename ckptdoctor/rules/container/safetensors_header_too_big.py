"""The header of the safetensors file is longer than safetensors allows.

Meaning
    safetensors rejects headers of more than 100,000,000 bytes. This one is valid but longer: more than a million
    tensors, very long names, or a text such as a tokenizer put into the metadata.

Why it matters
    The whole file is rejected, with the same message as for a file that is not safetensors.

Symptoms
    Error while deserializing header: header too large
    HeaderTooLarge

Detection
    The first eight bytes give the length of the header, the file is long enough for it, and JSON begins right after
    them.

Repair
    None: write the tensors to several files, stack those that belong together, or leave the long text out of the
    metadata.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Container
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.refusals import HEADER
from ckptdoctor.rules.when import long_safetensors_header

_LENGTH = 8
_MOST = 100_000_000  # MAX_HEADER_SIZE of the safetensors crate


def _inflated() -> bytes:
    text = b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    length = _MOST + 8
    return length.to_bytes(_LENGTH, "little") + text + b" " * (length - len(text) - 1) + b"}" + bytes(4)


SICK = (
    Example(
        "a header of more than 100 MB",
        {"w": T((1,))},
        "safetensors",
        ".safetensors",
        metadata={"format": "pt"},
        damage=lambda data: _inflated(),
    ),
)
HEALTHY = (Example("a header of some bytes", {"w": T((1,))}, "safetensors", ".safetensors", metadata={"format": "pt"}),)


@rule("C112", "safetensors-header-too-big", Severity.ERROR, when=long_safetensors_header)
def safetensors_header_too_big(container: Container) -> Iterator[Problem]:
    """Report a genuine header that is too long."""
    length = int.from_bytes(container.head[:_LENGTH], "little")
    if not _MOST < length <= container.size - _LENGTH or container.head[_LENGTH : _LENGTH + 2] not in (b'{"', b"{ "):
        return
    yield Problem(
        message=f"the header has {length:,} bytes; safetensors allows {_MOST:,}",
        cause="It lists too many tensors, or its metadata holds a long text. The tensors themselves may be fine.",
        torch_says=(f"{HEADER}header too large",),
        advice="Write the tensors to several files, or leave long texts out of the metadata.",
        location=Location(offset=0, length=_LENGTH),
    )
