"""Containers that are read but not written: what is said to whoever wants one repaired."""

from __future__ import annotations

import os
import shlex

from ckptdoctor.checkpoint import Source
from ckptdoctor.errors import RefusedError


def refused(source: Source, name: str) -> RefusedError:
    """The error for edits of a file in the format ``name``: what makes a file that can be repaired."""
    output = os.path.splitext(source.path.rstrip("/"))[0] + ".safetensors"
    return RefusedError(
        f"{source.path} is a {name}, which cannot be repaired in place: "
        f"this makes a file that can: ckptdoctor convert {shlex.quote(source.path)} {shlex.quote(output)}"
    )
