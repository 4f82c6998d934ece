"""Makes the output file: complete, verified and on the disk under another name first, then published in one step."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from time import perf_counter

from ckptdoctor.checkpoint import FileIdentity, process, progress
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.errors import WriteError
from ckptdoctor.noun import noun
from ckptdoctor.wording import plural
from ckptdoctor.writing.comparing import WORTH_A_THREAD, compare, followed
from ckptdoctor.writing.filling import Originals, fill, originals, reserve
from ckptdoctor.writing.interrupts import cleaned_up
from ckptdoctor.writing.recipe import Recipe
from ckptdoctor.writing.system import NO_LINKS, free_bytes, restore, sync_data, sync_directory
from ckptdoctor.writing.target import Target, resolve
from ckptdoctor.writing.unfinished import sweep, temporary_file


@noun
class Written:
    """What was published: its path as asked for, its bytes, and how many of them are the original's."""

    path: str
    nbytes: int
    copied: int
    seconds: float


@noun
class Part:
    """One of several files that are published together. ``verify`` gets the path of the complete temporary file."""

    recipe: Recipe
    output: str
    verify: Callable[[str], None] | None = None


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
    part = Part(recipe, output, verify)
    return publish_together((part,), force=force, break_links=break_links, identity=identity)[0]


def publish_together(
    parts: Sequence[Part],
    *,
    force: bool = False,
    break_links: bool = False,
    identity: FileIdentity | None = None,
) -> list[Written]:
    """Return the same for several files.

    All are complete and verified before the first gets its name, the last one last.

    ``identity`` is the source of the first recipe. Where a name cannot be given in the end, new files that have got
    theirs are removed again.
    """
    started = perf_counter()
    swept: set[str] = set()
    known: dict[str, FileIdentity | None] = {parts[0].recipe.source: identity}
    try:
        with cleaned_up(), ExitStack() as names:
            with ExitStack() as opened:  # Windows gives no file another name, and replaces none, while it is open
                made = [_made(part, names, opened, known, force, break_links, swept) for part in parts]
                for files, _, _ in made:
                    files.require_unchanged()
            process.commit()
            _reveal_all(parts, [(path, target) for _, path, target in made])
    except OSError as error:
        raise WriteError(_sentence(error, parts[-1].output, parts[-1].recipe)) from error
    seconds = perf_counter() - started
    recipes = [(each.output, each.recipe) for each in parts]
    return [Written(output, recipe.size, recipe.size - recipe.new_bytes, seconds) for output, recipe in recipes]


def _made(
    part: Part,
    names: ExitStack,
    opened: ExitStack,
    known: dict[str, FileIdentity | None],
    force: bool,
    break_links: bool,
    swept: set[str],
) -> tuple[Originals, str, Target]:
    """Return the complete, verified file of one part under its temporary name, which lasts as long as ``names``.

    The originals stay open as long as ``opened``.
    """
    recipe = part.recipe
    try:
        files = opened.enter_context(originals(recipe.source, known.get(recipe.source)))
        target = resolve(part.output, os.fstat(files.first), force=force, break_links=break_links)
        if target.directory not in swept:
            sweep(target.directory)
            swept.add(target.directory)
        path, fd = names.enter_context(temporary_file(target))
        try:
            _make(part, files, fd, path)
        finally:
            os.close(fd)
    except OSError as error:
        raise WriteError(_sentence(error, part.output, recipe)) from error
    return files, path, target


def _make(part: Part, files: Originals, fd: int, path: str) -> None:
    """Do everything up to a complete, verified file that has only the wrong name."""
    recipe = part.recipe
    cloned = reserve(recipe, files, fd)
    with _synced(fd, recipe.size) as complete, followed(recipe, files, fd) as follower:
        with progress.phase("copying", recipe.size) as copying:

            def wrote(at: int) -> None:
                copying.reach(at)
                if follower is not None:
                    follower.reach(at)

            fill(recipe, files, fd, wrote, cloned=cloned)
        complete()
        with progress.phase("comparing", recipe.size) as comparing:
            if follower is not None:
                follower.wait(comparing)
            else:
                compare(recipe, files, fd, comparing)
        if part.verify is not None:
            with progress.phase("verifying", recipe.size):
                part.verify(path)
    restore(files.first, fd)
    os.fsync(fd)


def _reveal_all(parts: Sequence[Part], made: Sequence[tuple[str, Target]]) -> None:
    shown: list[Target] = []
    for part, (path, target) in zip(parts, made, strict=True):
        try:
            reveal(path, target)
            shown.append(target)
            sync_directory(target.directory)
        except BaseException as error:
            for each in shown:
                if not each.replaces:
                    os.unlink(each.path)
            if isinstance(error, OSError):
                raise WriteError(_sentence(error, part.output, part.recipe)) from error
            raise


@contextmanager
def _synced(fd: int, size: int) -> Iterator[Callable[[], None]]:
    """Send the file to the disk while this lasts; call what is given once all bytes are written."""
    if size < WORTH_A_THREAD:
        yield lambda: None
        return
    background = BackgroundSync(fd)
    try:
        yield background.complete
        with progress.phase("waiting for the disk", 0) as waiting:
            background.wait(waiting)
    except BaseException:
        background.abandon()
        raise


def reveal(path: str, target: Target) -> None:
    """Give the temporary file the target's name, in one step that a crash cannot split."""
    if target.replaces:
        os.replace(path, target.path)
        return
    try:
        os.link(path, target.path)  # unlike a rename it fails when a file has appeared there meanwhile
    except FileExistsError as error:
        raise WriteError(f"{target.path} appeared while the output was being written; it was left alone.") from error
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if os.path.lexists(target.path):
            raise WriteError(
                f"{target.path} appeared while the output was being written; it was left alone."
            ) from error
        os.rename(path, target.path)


def _sentence(error: OSError, output: str, recipe: Recipe) -> str:
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        free = free_bytes(os.path.dirname(os.path.realpath(output)))
        room = "" if free is None else f" and {free:,} are free"
        needed = plural(recipe.size, "byte is", "bytes are")
        return f"Not enough disk space for {output}: {needed} needed{room}. Nothing was written; give another path."
    if error.errno == errno.EFBIG:
        most = f"{recipe.size:,} bytes exceed the limit for a file here"
        return f"{output} cannot be written: {most}. Give another output path, or check ulimit -f."
    return f"{output} could not be written: {error.strerror or error}. The original is untouched; give another path."


# ---- brings the output to the disk while it is still being written and verified, so that nobody waits twice


_TICK = 0.1  # seconds
_PAUSE = 0.05  # seconds between two rounds; a round with nothing new to write costs next to nothing


class BackgroundSync:
    """A thread that keeps syncing the file ``fd``. The disk works while the rest of the process copies and compares."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._complete = threading.Event()
        self._over = threading.Event()  # Ctrl-C in Thread.join would make Python take the thread for one that ended
        self._abandoned = False
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="ckptdoctor-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._complete.wait(_PAUSE):
                sync_data(self._fd)
            if not self._abandoned:
                sync_data(self._fd)
        except OSError as error:  # a lost write is reported once for each open file: it must not get lost here
            self._error = error
        finally:
            self._over.set()

    def complete(self) -> None:
        """Finish the writing with one last round."""
        self._complete.set()

    def wait(self, work: Work | None = None) -> None:
        """Wait for the last round, as part of some work that may be ended. Raises the OSError that any of them met."""
        self._complete.set()
        while not self._over.wait(_TICK):
            if work is not None:
                work.go_on()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Stop as soon as possible: the file is removed, and what is not on the disk yet need not get there."""
        self._abandoned = True
        self._complete.set()
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
        self._over.wait()
