"""What is said to whoever wants a folder repaired."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.errors import RefusedError


def refusal(checkpoint: Checkpoint) -> RefusedError:
    """A repair makes one file: a folder must become one first."""
    return RefusedError(
        f"{checkpoint.path} is a folder of several files, which is not repaired in place: "
        f"make one file of it first, with “ckptdoctor convert {checkpoint.path} model.safetensors”."
    )
