"""The file belongs to another framework: GGUF, HDF5, ONNX, TensorFlow, Flax and others.

Meaning
    The contents are recognised by their bytes. They hold weights for another library.

Why it matters
    Neither ``torch.load`` nor safetensors reads them, and their messages do not show what the file is.

Symptoms
    Unsupported operand 71
    invalid load key, 'H'.

Detection
    The first bytes, or the names in the archive. If the name also promises torch or safetensors, C101 reports it.

Repair
    None: the finding names the tool that opens it. NumPy's arrays are read here: ``ckptdoctor convert FILE
    model.safetensors``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Container, NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.converting import convert_command, with_article
from ckptdoctor.rules.kit.noticed import notes_of
from ckptdoctor.rules.kit.refusals import torch_says
from ckptdoctor.rules.when import unusual_format
from ckptdoctor.wording import format_name

# what each container is for; those that are read here are not refused, only told
_FRAMEWORKS = {
    "GGUF file": "llama.cpp",
    "GGML file": "llama.cpp",
    "HDF5 file": "h5py and Keras",
    "Keras archive": "Keras",
    "ONNX model": "ONNX",
    "TensorFlow checkpoint": "TensorFlow",
    "TensorFlow SavedModel": "TensorFlow",
    "TensorFlow Lite model": "TensorFlow Lite",
    "MessagePack file": "Flax",
    "Orbax checkpoint": "Orbax",
    "Zarr store": "Zarr",
    "TensorRT engine": "TensorRT",
    "MATLAB file": "MATLAB",
    "Torch7 file": "the Lua version of Torch",
}
_ARRAYS = ("NumPy archive", "NumPy array")
SICK = (
    Example("weights for llama", raw=b"GGUF\3\0\0\0" + bytes(range(1, 65)), suffix=".gguf"),
    Example("weights for Keras", raw=b"\x89HDF\r\n\x1a\n" + bytes(range(1, 65)), suffix=".h5"),
    Example("parameters of Flax", raw=b"\x81\xa6params\x81\xa5dense\xc4\x02\x01\x02" + b"\x01" * 16, suffix=".msgpack"),
)
HEALTHY = (Example("weights for torch", {"w": T((3,))}),)


@rule("C114", "framework-mismatch", Severity.ERROR, when=unusual_format)
def framework_mismatch(container: Container) -> Iterator[Problem]:
    """Report weights for another library."""
    if notes_of(container, NoteKind.WRONG_SUFFIX):
        return  # C101's: it says what the contents are, too
    if container.format in _ARRAYS:
        yield _arrays(container)
    elif container.format in _FRAMEWORKS:
        yield Problem(
            message=f"this is {with_article(container.format)}: it is for {_FRAMEWORKS[container.format]}, not torch",
            cause="It was made by another framework, or converted for it. Neither torch nor safetensors reads it.",
            torch_says=torch_says(container) if container.head[:2] != b"PK" else (),
            advice=container.guidance,
        )


def _arrays(container: Container) -> Problem:
    return Problem(
        message=f"this is a {format_name(container.format)}: numpy.load reads it, torch.load does not",
        cause="NumPy wrote it. Its arrays can become tensors without loss.",
        commands=(convert_command(container.path),),
        severity=Severity.INFO if container.readable else Severity.ERROR,
    )
