"""Gives the output the original's owner, permissions and extended attributes, as far as the system lets us."""

from __future__ import annotations

import contextlib
import os
import stat


def restore(source: int, target: int) -> None:
    """Owner and group first (changing them clears permission bits), then the mode, then extended attributes."""
    status = os.fstat(source)
    if hasattr(os, "fchown"):
        _chown(target, status)
    if hasattr(os, "fchmod"):
        os.fchmod(target, stat.S_IMODE(status.st_mode))
    _copy_attributes(source, target)


def _chown(target: int, status: os.stat_result) -> None:
    """The owner, or at least the group: only root gives files away, which is no reason to fail."""
    with contextlib.suppress(OSError):
        os.fchown(target, -1, status.st_gid)
    with contextlib.suppress(OSError):
        os.fchown(target, status.st_uid, -1)


def _copy_attributes(source: int, target: int) -> None:
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(source)
    except OSError:  # the file system has none
        return
    for name in names:
        # security labels and the like are set by the system itself
        with contextlib.suppress(OSError):
            os.setxattr(target, name, os.getxattr(source, name))
