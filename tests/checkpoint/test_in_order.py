"""Work on large pieces in threads: what comes of it, in which order, and how it ends."""

from __future__ import annotations

import threading
import time

import pytest

from ckptdoctor.checkpoint import progress
from ckptdoctor.checkpoint.progress import in_order
from ckptdoctor.errors import StoppedError


def test_results_come_in_the_order_of_the_items():
    """However long each of them takes."""
    assert list(in_order(lambda each: time.sleep(0.01 * (each % 3 == 0)) or each * each, range(20))) == [
        each * each for each in range(20)
    ]


def test_few_items_are_taken_before_their_results_are():
    """Each holds memory: a long file is not read ahead to its end."""
    taken = []

    def items():
        for each in range(1000):
            taken.append(each)
            yield each

    results = in_order(lambda each: each, items())
    next(results)
    assert len(taken) < 10
    results.close()


def test_what_is_done_counts_for_the_work_that_has_begun():
    """Whoever listens hears of the bytes of every thread."""
    heard = []
    with progress.heard(heard.append), progress.phase("testing", 100):
        list(in_order(lambda each: progress.advance(10), range(10)))
    assert heard[-1].done == 100


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_ends_all_of_it(error):
    """It is the one that was raised, of the first item that has one; no thread is left, and no more items are taken."""
    taken = []

    def items():
        for each in range(1000):
            taken.append(each)
            yield each

    def do(each):
        if each == 5:
            raise error
        return each

    with pytest.raises(error):
        list(in_order(do, items()))
    assert len(taken) < 20
    assert not [each for each in threading.enumerate() if each.name.startswith("ckptdoctor-pieces")]


def test_what_still_runs_ends_with_its_next_word():
    """Ctrl-C does not wait for the end of a tensor of gigabytes."""
    runs, stopped = threading.Event(), threading.Event()

    def do(each):
        if each == 0:
            assert runs.wait(60)
            raise KeyboardInterrupt
        try:
            runs.set()
            while True:
                progress.advance(1)
                time.sleep(0.001)
        except StoppedError:
            stopped.set()
            raise

    with pytest.raises(KeyboardInterrupt), progress.phase("testing", 0):
        list(in_order(do, range(2)))
    assert stopped.is_set()


def test_who_wants_no_more_of_it_ends_nothing_else():
    """The work goes on that this was a part of."""
    with progress.phase("testing", 0):
        results = in_order(lambda each: each, range(100))
        next(results)
        results.close()
        progress.advance(1)


def test_listeners_hear_of_it_in_the_thread_that_asks():
    """A progress bar in a notebook, say, is not touched by others."""
    where = set()
    with progress.heard(lambda _: where.add(threading.current_thread())), progress.phase("testing", 100):
        list(in_order(lambda each: progress.advance(10), range(10)))
    assert where == {threading.current_thread()}


def test_a_listener_that_wants_no_more_ends_it_while_it_waits():
    """As closing the browser does, in the middle of one large tensor."""

    def hear(told):
        if told.done > 3:
            raise StoppedError

    def do(each):
        while True:
            progress.advance(1)
            time.sleep(0.001)

    with progress.heard(hear), pytest.raises(StoppedError), progress.phase("testing", 0):
        list(in_order(do, range(2)))


def test_where_there_is_nothing_to_do_no_thread_is_begun(monkeypatch):
    """Nearly every repair has no piece that is large: it does not import what threads need."""
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor", lambda *_, **__: pytest.fail("threads were begun"))
    assert list(in_order(lambda each: each, ())) == []
