"""Does work on large pieces in threads, which NumPy and reading let run, and gives what came of it in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

from ckptdoctor.checkpoint.progress import current

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Made = TypeVar("Made")

_THREADS = 2  # more wait for memory, and each holds a piece of it
_AHEAD = 3  # items that are begun before the result of the first is taken


def in_order(do: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """Yield what ``do`` makes of each item, in their order; items are taken in the thread that asks.

    What is done counts for the work that has begun in this thread. Raises what ``do`` raises; then, and when Ctrl-C
    comes, what still runs ends with its next word of how far it is.
    """
    from concurrent.futures import ThreadPoolExecutor  # few files have large pieces that are computed with

    work = current()
    begun: deque[Future[Made]] = deque()
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ckptdoctor-pieces")
    try:
        for item in items:
            begun.append(pool.submit(copy_context().run, do, item))
            if len(begun) > _AHEAD:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    except GeneratorExit:  # nobody wants more of this, which says nothing of the rest of the work
        raise
    except BaseException:
        work.stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
