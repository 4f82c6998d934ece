"""The screen comes before threads that compute."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from ckptdoctor.tui import thread_priority

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the loop there is another")


def test_threads_are_there_before_there_is_work():
    """All work that comes at once is done by threads that have been started before: no key waits for one to start."""

    async def program() -> tuple[set[int], set[int]]:
        before = {each.ident for each in threading.enumerate()}
        together = threading.Barrier(thread_priority._THREADS, timeout=10)

        def work() -> int:
            together.wait()
            return threading.get_ident()

        return before, set(await asyncio.gather(*[asyncio.to_thread(work) for _ in range(thread_priority._THREADS)]))

    before, workers = thread_priority.run(program())
    assert len(workers) == thread_priority._THREADS
    assert workers <= before


def test_the_interval_of_python_comes_back():
    """After the program, and after one that fails, threads take turns as they did before."""

    async def fails() -> None:
        assert sys.getswitchinterval() == pytest.approx(thread_priority._DRAWING)
        raise LookupError("on purpose")

    before = sys.getswitchinterval()
    with pytest.raises(LookupError, match="on purpose"):
        thread_priority.run(fails())
    assert sys.getswitchinterval() == before
