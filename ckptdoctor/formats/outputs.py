"""Which container the name of an output asks for."""

from __future__ import annotations

import os

TORCH = (".pt", ".pth", ".ckpt", ".bin")
SAFETENSORS = (".safetensors", ".sft")
TORCH_ZIP, SINGLE, SHARDED = "torch zip", "safetensors", "sharded safetensors"
_OF_TORCH = (TORCH_ZIP, "torch legacy")


def asked_for(output: str | None, own: str) -> str | None:
    """The container that the name of a repair's output asks for, where that is not the kind of ``own``; None without.

    A folder that is there takes a file of the original's name, and a suffix that says nothing leaves the container.
    """
    if output is None or os.path.isdir(output):
        return None
    if output.endswith(("/", os.sep)):
        return SHARDED
    suffix = os.path.splitext(output)[1].lower()
    if suffix in SAFETENSORS:
        return None if own == SINGLE else SINGLE
    return TORCH_ZIP if suffix in TORCH and own not in _OF_TORCH else None
