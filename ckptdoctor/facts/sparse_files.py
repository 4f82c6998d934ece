"""Whether a file has holes: what the file system says, without reading anything."""

from __future__ import annotations

import os
import stat

_BLOCK = 512  # bytes of st_blocks, whatever the file system


def is_sparse(path: str) -> bool:
    """Whether a local regular file has fewer blocks than bytes."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # on another machine, or gone
        return False
    return stat.S_ISREG(status.st_mode) and getattr(status, "st_blocks", status.st_size) * _BLOCK < status.st_size
