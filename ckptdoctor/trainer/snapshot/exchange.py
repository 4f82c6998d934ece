"""Two names of one folder trade places, in one step where the system has a call for that."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

_AT_FDCWD = -100  # Linux, fcntl.h: relative paths start at the working directory
_RENAME_EXCHANGE = 2  # Linux, renameat2(2)
_RENAME_SWAP = 2  # macOS, renamex_np(2)
# what a system, or a file system, says of a call that it does not have
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM})


def exchange(one: Path, other: Path) -> bool:
    """Let the two paths trade what they name. False where that cannot be done in one step; nothing has changed then.

    ``renameat2(2)`` with RENAME_EXCHANGE on Linux, ``renamex_np(2)`` with RENAME_SWAP on macOS. Raises OSError.
    """
    call = _system_call()
    if call is None:
        return False
    if call(os.fsencode(one), os.fsencode(other)) == 0:
        return True
    error = ctypes.get_errno()
    if error in _UNSUPPORTED:
        return False
    raise OSError(error, os.strerror(error), str(other))


def _system_call() -> Callable[[bytes, bytes], int] | None:
    """The call that exchanges two paths; None where there is none (Windows, an old C library)."""
    if sys.platform == "win32":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "renameat2"):
        return lambda one, other: int(library.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE))
    if hasattr(library, "renamex_np"):
        return lambda one, other: int(library.renamex_np(one, other, _RENAME_SWAP))
    return None
