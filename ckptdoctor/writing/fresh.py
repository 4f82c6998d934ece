"""Writes files of nothing but new text, such as a page: whole and on the disk first, then named in one step."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress

from ckptdoctor.checkpoint import process
from ckptdoctor.errors import WriteError
from ckptdoctor.writing.interrupts import cleaned_up
from ckptdoctor.writing.publishing import reveal
from ckptdoctor.writing.system import sync_directory
from ckptdoctor.writing.target import Target, resolve
from ckptdoctor.writing.unfinished import sweep, temporary_file

_BEGINNING = 512  # bytes of an existing file that are looked at


def require(output: str, kind: bytes, *, force: bool = False, what: str = "page") -> Target:
    """Return where ``output`` leads, if it may be written: see ``write_fresh``."""
    path = os.path.realpath(output)
    if os.path.isfile(path) and not _is(path, kind):  # with or without force: nobody is told to use it in vain
        raise WriteError(f"{output} is not a {what} of ckptdoctor, so it is never replaced. Give another output path.")
    return resolve(output, None, force=force)


def write_fresh(data: bytes, output: str, kind: bytes, *, force: bool = False, what: str = "page") -> None:
    """Give the new file ``output`` these contents, as ``fill_fresh`` does."""
    fill_fresh(lambda fd: _fill(fd, data), output, kind, force=force, what=what)


def fill_fresh(
    fill: Callable[[int], None],
    output: str,
    kind: bytes,
    *,
    force: bool = False,
    what: str = "page",
    undo: ExitStack | None = None,
) -> None:
    """Give the new file ``output`` the contents that ``fill`` writes to the descriptor that it is given.

    A file that is there is replaced only with ``force``, and only where it is empty or begins with ``kind`` (whatever
    case and white space): a slip of the hand must not cost a checkpoint. ``what`` names the kind in the refusal. With
    ``undo``, it is one of several: one that was not there before is removed again where that stack is unwound. Raises
    WriteError, and what ``fill`` raises; then nothing has changed.
    """
    target = require(output, kind, force=force, what=what)
    sweep(target.directory)
    try:
        with cleaned_up(), temporary_file(target, 0o666) as (path, fd):
            try:
                fill(fd)
                os.fsync(fd)
            finally:
                os.close(fd)  # Windows gives no file another name while it is open
            if undo is None:
                process.commit()
                reveal(path, target)
            else:
                with process.patience():
                    reveal(path, target)
                    if not target.replaces:
                        undo.callback(_remove, target.path)
            sync_directory(target.directory)
    except OSError as error:
        why = "no space left" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise WriteError(f"{output} could not be written: {why}. Nothing has changed.") from error


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _is(path: str, kind: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(_BEGINNING)
    except OSError as error:
        raise WriteError(f"{path} cannot be examined: {error.strerror}.") from error
    return not head or _bare(head).startswith(_bare(kind))


def _bare(text: bytes) -> bytes:
    """Return it without case and white space: an editor may change those."""
    return b"".join(text.lower().split())


def _fill(fd: int, data: bytes) -> None:
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
