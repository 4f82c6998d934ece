"""Makes the output file: complete, verified and on the disk under another name first, then published in one step."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter

from ckptdoctor.checkpoint import FileIdentity
from ckptdoctor.errors import WriteError
from ckptdoctor.writing.attributes import restore
from ckptdoctor.writing.comparing import compare
from ckptdoctor.writing.filling import fill, reserve
from ckptdoctor.writing.interrupts import cleaned_up
from ckptdoctor.writing.recipe import Recipe
from ckptdoctor.writing.syncing import BackgroundSync
from ckptdoctor.writing.system import BINARY, NO_LINKS, free_bytes, sync_directory
from ckptdoctor.writing.target import Target, resolve, temporary_name

# Shorter outputs are on the disk before a second thread would have started
_WORTH_A_THREAD = 16 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """What was published: its path as asked for, its bytes, and how many of them are the original's."""

    path: str
    nbytes: int
    copied: int
    seconds: float


def publish(
    recipe: Recipe,
    output: str,
    *,
    force: bool = False,
    break_links: bool = False,
    verify: Callable[[str], None] | None = None,
    identity: FileIdentity | None = None,
) -> Written:
    """Write ``recipe`` to ``output``: atomic, durable, and compared byte for byte with what was meant.

    The original may be replaced only with ``force``, and a file with several names only with ``break_links``.
    ``verify`` gets the path of the complete temporary file and raises to refuse it. ``identity`` is the original as
    it was when the recipe was made. Raises WriteError, and whatever ``verify`` raises; then nothing has changed.
    """
    started = perf_counter()
    try:
        with cleaned_up(), _opened(recipe.source) as source:
            before = _unchanged(source, recipe.source, identity)
            target = resolve(output, os.fstat(source), force=force, break_links=break_links)
            with _temporary(target) as (path, fd):
                _make(recipe, source, fd, path, verify)
                _unchanged(source, recipe.source, before)
                _reveal(path, target)
                sync_directory(target.directory)
    except OSError as error:
        raise WriteError(_sentence(error, output, recipe)) from error
    return Written(output, recipe.size, recipe.size - recipe.new_bytes, perf_counter() - started)


def _make(recipe: Recipe, source: int, fd: int, path: str, verify: Callable[[str], None] | None) -> None:
    """Everything up to a complete, verified file that has only the wrong name."""
    cloned = reserve(recipe, source, fd)
    with _synced(fd, recipe.size) as complete:
        fill(recipe, source, fd, cloned)
        complete()
        compare(recipe, source, fd)
        if verify is not None:
            verify(path)
    restore(source, fd)
    os.fsync(fd)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    try:
        fd = os.open(path, os.O_RDONLY | BINARY)
    except OSError as error:
        raise WriteError(f"The original {path} cannot be opened: {error.strerror}.") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _unchanged(fd: int, path: str, known: FileIdentity | None) -> FileIdentity:
    status = os.fstat(fd)
    now = FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if known is not None and now != known:
        raise WriteError(f"{path} changed while it was being repaired; nothing was written. Repair it again.")
    return now


@contextmanager
def _temporary(target: Target) -> Iterator[tuple[str, int]]:
    """A new file beside the target, gone afterwards unless it has got the target's name."""
    path = temporary_name(target)
    try:
        # O_EXCL: never write into a file, or through a link, that someone else has put there
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY, 0o600)
        try:
            yield path, fd
        finally:
            os.close(fd)
    finally:
        with suppress(FileNotFoundError):  # renamed, or never made
            os.unlink(path)


@contextmanager
def _synced(fd: int, size: int) -> Iterator[Callable[[], None]]:
    """The file is on its way to the disk while this lasts; call what is given once all bytes are written."""
    if size < _WORTH_A_THREAD:
        yield lambda: None
        return
    background = BackgroundSync(fd)
    try:
        yield background.complete
        background.wait()
    except BaseException:
        background.abandon()
        raise


def _reveal(path: str, target: Target) -> None:
    """Give the temporary file the target's name, in one step that a crash cannot split."""
    if target.replaces:
        os.replace(path, target.path)
        return
    try:
        os.link(path, target.path)  # unlike a rename it fails when a file has appeared there meanwhile
    except FileExistsError as error:
        raise WriteError(f"{target.path} has appeared while the output was written; it was left alone.") from error
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if os.path.lexists(target.path):
            raise WriteError(f"{target.path} has appeared while the output was written; it was left alone.") from error
        os.rename(path, target.path)


def _sentence(error: OSError, output: str, recipe: Recipe) -> str:
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        free = free_bytes(os.path.dirname(os.path.realpath(output)))
        room = "" if free is None else f" and {free:,} are free"
        return f"There is no room for {output}: {recipe.size:,} bytes are needed{room}. Nothing was written."
    if error.errno == errno.EFBIG:
        return f"{output} cannot be written: {recipe.size:,} bytes are more than a file may have here."
    return f"{output} could not be written: {error.strerror or error}. The original is untouched."
