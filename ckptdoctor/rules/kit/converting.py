"""The rules about other containers share the command that converts the file, and how they name formats."""

from __future__ import annotations

import os.path

from ckptdoctor.checkpoint.naming import stem_of
from ckptdoctor.shell import quote


def convert_command(path: str, suffix: str = ".safetensors", options: str = "") -> str:
    """Return how to make a safetensors file, or what the suffix says, of the checkpoint at ``path``."""
    stem = stem_of(path) if os.path.isdir(path) else os.path.splitext(path)[0]
    return f"ckptdoctor convert FILE {quote(stem + suffix)}{options and f' {options}'}"


def with_article(name: str) -> str:
    """Return the name of a format with its article: ``an ONNX model``, ``a GGUF file``."""
    spelt = name.split()[0].isupper() and name[0] in "FHLMNRSX"  # read letter by letter: an HDF5 file
    return f"{'an' if name[:1].lower() in 'aeio' or spelt else 'a'} {name}"
