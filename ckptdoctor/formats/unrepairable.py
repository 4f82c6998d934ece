"""Containers that are read but not written: what is said to whoever wants one repaired."""

from __future__ import annotations

from ckptdoctor.checkpoint import Source
from ckptdoctor.errors import RefusedError


def refused(source: Source, name: str) -> RefusedError:
    """The error for edits of a file in the format ``name``: what makes a file that can be repaired."""
    return RefusedError(
        f"{source.path} is a {name}, which cannot be repaired in place: "
        "ckptdoctor convert FILE model.safetensors (or model.pt) makes a file that can."
    )
