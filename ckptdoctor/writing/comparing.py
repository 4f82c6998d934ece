"""Reads the written file again and compares it with the recipe, byte for byte.

Of a large file, a second thread compares what is there already while the first goes on copying.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Event, Thread

from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.source import read_at
from ckptdoctor.errors import WriteError
from ckptdoctor.wording import plural
from ckptdoctor.writing.filling import Originals, Reading, blocks, originals
from ckptdoctor.writing.recipe import Generated, Recipe

WORTH_A_THREAD = 16 << 20  # shorter outputs are compared, and on the disk, before a second thread would have started

_TICK = 0.1  # seconds


def compare(recipe: Recipe, files: Originals, target: int, work: Work | None = None) -> None:
    """Raise WriteError with the first block of ``target`` that is not what ``recipe`` makes of ``files``."""
    _require_size(recipe, target)
    for at in _compared(recipe, files, target):
        if work is not None:
            work.reach(at)


def _require_size(recipe: Recipe, target: int) -> None:
    if os.fstat(target).st_size != recipe.size:
        raise WriteError(
            f"The output has {plural(os.fstat(target).st_size, 'byte')} instead of {recipe.size}; it was discarded."
        )


def _compared(recipe: Recipe, files: Originals, target: int) -> Iterator[int]:
    """Yield how far it is to be compared next, and compare as far as that."""
    at = 0
    for block in blocks(recipe.segments, Reading(files)):
        yield at + len(block)
        if _read(target, len(block), at) != block:
            raise WriteError(
                f"The output differs from the plan within {plural(len(block), 'byte')} from byte {at}; it "
                "was discarded. The disk or the memory may be faulty.",
                offset=at,
            )
        at += len(block)
    if at != recipe.size:
        raise WriteError(
            f"{plural(at, 'byte was', 'bytes were')} verified instead of {recipe.size}; the output was discarded."
        )


def _read(fd: int, length: int, offset: int) -> bytes:
    data = read_at(fd, length, offset)
    while len(data) < length:
        more = read_at(fd, length - len(data), offset + len(data))
        if not more:
            return data
        data += more
    return data


# ---- in a second thread, behind the one that writes


class Follower:
    """A thread that compares what has been written so far: ``reach`` says how much that is."""

    def __init__(self, recipe: Recipe, files: Originals, target: int) -> None:
        self._recipe = recipe
        self._source = files.path, files.identity
        self._target = target
        self._written = 0
        self._more = Condition()
        self._work = Work()
        self._error: BaseException | None = None
        self._over = Event()  # Ctrl-C in Thread.join would make Python take the thread for one that ended
        Thread(target=self._run, name="ckptdoctor-comparing", daemon=True).start()

    def reach(self, written: int) -> None:
        """Have it compare this far. Raises what it has met by now."""
        if self._error is not None:
            raise self._error
        with self._more:
            self._written = written
            self._more.notify()

    def wait(self, work: Work) -> None:
        """Wait until all is compared. Raises WriteError with the first block that is not as it was meant."""
        while not self._over.wait(_TICK):
            work.reach(self._work.done)
        if self._error is not None:
            raise self._error
        work.reach(self._recipe.size)

    def end(self) -> None:
        """Leave nothing at work, whether or not it has come to an end."""
        self._work.stop()
        with self._more:
            self._more.notify()
        self._over.wait()

    def _run(self) -> None:
        try:
            with originals(*self._source) as files:  # of its own: files are opened and closed as they are needed
                for at in _compared(self._recipe, files, self._target):
                    self._await(at)
                    self._work.reach(at)
            _require_size(self._recipe, self._target)
        except BaseException as error:  # noqa: BLE001  carried over to the thread that waits
            self._error = error
        finally:
            self._over.set()

    def _await(self, at: int) -> None:
        with self._more:
            self._more.wait_for(lambda: self._written >= at or self._work.stopped)


@contextmanager
def followed(recipe: Recipe, files: Originals, target: int) -> Iterator[Follower | None]:
    """Yield who compares what is being written; None where that is better done afterwards.

    What is made while it is written is made again to be compared, and two threads do not make things at once.
    """
    if recipe.size < WORTH_A_THREAD or any(isinstance(each, Generated) for each in recipe.segments):
        yield None
        return
    follower = Follower(recipe, files, target)
    try:
        yield follower
    finally:
        follower.end()
