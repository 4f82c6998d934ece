"""Tells how far long work is, and ends it where nobody wants the rest.

Whoever reads or writes many bytes has a ``Work``, and says there how far it is. Whoever listens is told the
``Progress`` each time, and may raise StoppedError, which ends the work there. ``phase`` begins work that everybody
hears who listens in this thread (``heard``). ``in_thread`` does work in a thread of its own, so that whoever waits
hears how far it is and Ctrl-C ends it at once. ``in_order`` does parts of it in several.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar, copy_context
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from ckptdoctor.checkpoint import process
from ckptdoctor.errors import StoppedError
from ckptdoctor.noun import field, noun

if TYPE_CHECKING:
    from concurrent.futures import Future

Result = TypeVar("Result")
Said = TypeVar("Said")


@noun
class Progress:
    """How far one kind of work is: ``done`` of ``total`` bytes of ``what`` (0: nobody knows how many there are).

    ``complete`` once it is over and nothing was left undone. ``unit`` is what is counted where it is not bytes.
    """

    what: str
    done: int
    total: int
    complete: bool = False
    unit: str = ""


# Hears how far work is, each time that it says so. Work ends where a listener raises StoppedError
Listener = Callable[[Progress], None]

_EVERY = 0.1  # seconds between two reports, and between two looks at the work of another thread


def now_and_then(listener: Listener) -> Listener:
    """Return the same listener, told only ten times a second, and whenever work begins or all of it is done."""
    last, told = Progress("", 0, 0), float("-inf")

    def hear(progress: Progress) -> None:
        nonlocal last, told
        begins = progress.what != last.what or progress.done < last.done
        ends = last.done < last.total == progress.done
        if begins or ends or monotonic() - told >= _EVERY:
            last, told = progress, monotonic()
            listener(progress)

    return hear


class Work:
    """One kind of long work: ``done`` of ``total`` bytes of ``what``. Threads may share it.

    ``stopped`` once it is known that nobody wants the rest.
    """

    def __init__(self, what: str = "", total: int = 0, listener: Listener | None = None, unit: str = "") -> None:
        from threading import Lock  # no examination of headers needs threads

        self.what = what
        self.total = total
        self.unit = unit
        self.done = 0
        self.stopped = False
        self._listener = listener
        self._lock = Lock()

    @property
    def progress(self) -> Progress:
        """How far it is."""
        done = min(self.done, self.total) if self.total else self.done
        return Progress(self.what, done, self.total, unit=self.unit)

    def advance(self, count: int) -> None:
        """Count so many bytes more. Raises StoppedError where nobody wants the rest."""
        with self._lock:
            self.done += count
            self._tell()

    def reach(self, done: int) -> None:
        """Count so many bytes altogether. Raises StoppedError where nobody wants the rest."""
        with self._lock:
            self.done = done
            self._tell()

    def go_on(self) -> None:
        """Nothing more is done yet. Raises StoppedError where nobody wants the rest."""
        with self._lock:
            self._tell()

    def stop(self) -> None:
        """Nobody wants the rest: it ends with its next word."""
        self.stopped = True

    def _tell(self) -> None:
        if self.stopped:
            raise StoppedError
        if self._listener is None:
            return
        try:
            self._listener(self.progress)
        except StoppedError:
            self.stopped = True
            raise

    def again(self) -> Work:
        """Return the work for what is read once more: it ends where this does, and counts nothing."""
        return Work(self.what, self.total, lambda progress: self.go_on())


# ---- work in the thread that asks for it: what others do at the same time is told by the one that waits for them


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
_work: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def heard(listener: Listener) -> Iterator[None]:
    """Have ``listener`` told of all work in this thread meanwhile."""
    before = _listener.get()
    _listener.set(listener)
    try:
        yield
    finally:
        _listener.set(before)


@contextmanager
def phase(what: str, total: int, unit: str = "") -> Iterator[Work]:
    """Begin one kind of work, of so many bytes, or of what ``unit`` names; ``advance`` counts for it."""
    before = _work.get()
    begun = Work(what, total, _listener.get(), unit)
    _work.set(begun)
    try:
        begun.go_on()
        yield begun
        begun.go_on()
    finally:
        _work.set(before)


def begin(what: str) -> None:
    """Something begins that says nothing until it is over. Whoever listens is told, except within a ``phase``."""
    listener = _listener.get()
    if listener is not None and _work.get() is None:
        listener(Progress(what, 0, 0))


def current() -> Work:
    """Return the work that has begun in this thread; one that nobody hears of where none has."""
    return _work.get() or Work()


def advance(count: int) -> None:
    """Count so many bytes more of whatever is being done; nothing where nobody has said what that is."""
    begun = _work.get()
    if begun is not None:
        begun.advance(count)


# ---- work in a thread of its own


# seconds that the work has to hand over what it has found; fewer before there can be anything, while NumPy is imported.
# The command line's process may end before the work does; any other interpreter would crash with it in the end
_GRACE, _NOTHING_YET, _ELSEWHERE = 1.0, 0.2, 10.0


@noun(frozen=False)
class WorkDone(Generic[Result]):
    """What came of the work: its ``result``, all of it if ``progress.complete``; None where there is none.

    ``interrupted``: Ctrl-C came meanwhile, perhaps too late to matter.
    """

    progress: Progress | None = None
    result: Result | None = None
    interrupted: bool = False
    error: BaseException | None = field(default=None, repr=False)

    @property
    def complete(self) -> bool:
        """Whether nothing was left undone."""
        return self.progress is None or self.progress.complete

    def require(self) -> Result:
        """Return the result. Raises KeyboardInterrupt where the work was interrupted."""
        if self.interrupted or self.result is None:
            raise KeyboardInterrupt
        return self.result


def in_thread(do: Callable[[Work], Result], what: str, total: int) -> Generator[Progress, None, WorkDone[Result]]:
    """Do some work in a thread; it says in the ``Work`` that it is given how far it is.

    Yields that, and returns what came of it. Raises what the work raised, unless it was told to stop.
    """
    from threading import Event, Thread

    state: WorkDone[Result] = WorkDone()
    over = Event()  # not Thread.join: an exception there makes Python take a thread that still runs for one that ended
    begun = False

    def hear(progress: Progress) -> None:
        nonlocal begun
        begun = True
        if state.interrupted:
            raise StoppedError

    work = Work(what, total, hear)

    def run() -> None:
        try:
            state.result = do(work)
        except BaseException as error:  # noqa: BLE001  carried over to the thread that waits
            state.error = error
        finally:
            over.set()

    with process.patience():
        Thread(target=run, daemon=True).start()
        try:
            yield Progress(what, 0, total)
            while not (over.wait(_EVERY) or process.wants_end()):
                yield work.progress
            yield work.progress
            state.interrupted = process.wants_end()
        except KeyboardInterrupt:
            state.interrupted = True
        finally:
            state.interrupted |= not over.is_set()  # whoever waited has gone away
            grace = _ELSEWHERE if not process.is_ours() else _GRACE if begun else _NOTHING_YET
            complete = over.wait(grace) and not work.stopped and state.error is None
            state.progress = Progress(what, min(work.done, total), total, complete)
    if state.error is not None and not work.stopped:
        raise state.error
    return state


def follow(steps: Generator[Said, None, Result], listener: Callable[[Said], None]) -> Result:
    """Tell ``listener`` each step, and return what comes of them in the end.

    Ctrl-C that comes while it listens is for those who take the steps.
    """
    with closing(steps):
        while True:
            try:
                listener(next(steps))
            except StopIteration as end:
                found: Result = end.value
                return found
            except KeyboardInterrupt as interrupt:
                try:
                    listener(steps.throw(interrupt))
                except StopIteration as end:
                    last: Result = end.value
                    return last


# ---- parts of the work in several threads, which NumPy and reading let run


Item = TypeVar("Item")
Made = TypeVar("Made")

WORTH_A_THREAD = 1 << 20  # bytes of an item from which two threads take less time than one
_THREADS = 2  # more wait for memory, and each holds a piece of it
_AHEAD = 3  # items that are begun before the result of the first is taken


def in_order(do: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """Yield what ``do`` makes of each item, in their order; items are taken in the thread that asks.

    What is done counts for the work that has begun in this thread, which is where listeners hear of it. Raises what
    ``do`` raises; then, and when Ctrl-C comes, what still runs ends with its next word of how far it is.
    """
    left = iter(items)
    for item in left:  # few files have large pieces that are computed with: without any, no thread is begun
        yield from _in_threads(do, chain([item], left))


def _in_threads(do: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    from concurrent.futures import ThreadPoolExecutor, wait

    work, counted, told = current(), Work(), 0
    begun: deque[Future[Made]] = deque()
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ckptdoctor-pieces")

    def tell() -> None:
        nonlocal told
        done = counted.done
        work.advance(done - told)
        told = done

    def first() -> Made:
        while not begun[0].done():
            wait([begun[0]], _EVERY)
            tell()
        tell()
        return begun.popleft().result()

    try:
        for item in items:
            context = copy_context()
            context.run(_work.set, counted)
            begun.append(pool.submit(context.run, do, item))
            if len(begun) > _AHEAD:
                yield first()
        while begun:
            yield first()
    finally:
        if begun:  # not all of it is wanted any more
            counted.stop()
        pool.shutdown(cancel_futures=True)
