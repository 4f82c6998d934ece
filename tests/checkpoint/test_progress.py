"""Work says how far it is, whoever listens hears it, and it ends where nobody wants the rest."""

from __future__ import annotations

import threading

import pytest

from ckptdoctor.checkpoint import progress
from ckptdoctor.checkpoint.progress import Progress, Work, follow, heard, in_thread, now_and_then, phase
from ckptdoctor.errors import StoppedError


def refuse(progress):
    """Nobody wants any more."""
    raise StoppedError


def test_every_word_is_heard():
    """Bytes more and bytes altogether, and that nothing more is done yet; never more than all of them."""
    told = []
    work = Work("values", 10, told.append)
    work.advance(3)
    work.go_on()
    work.reach(12)
    assert told == [Progress("values", 3, 10), Progress("values", 3, 10), Progress("values", 10, 10)]
    assert work.done == 12


def test_work_of_unknown_size_counts():
    """Where nobody knows how many bytes there are, those that are done are told."""
    work = Work("unpacking")
    work.advance(7)
    assert work.progress == Progress("unpacking", 7, 0)


def test_work_that_was_stopped_stays_so():
    """The listener is not asked a second time."""
    told = []

    def once(progress):
        told.append(progress)
        raise StoppedError

    work = Work("values", 10, once)
    for _ in range(2):
        with pytest.raises(StoppedError):
            work.advance(1)
    assert work.stopped and len(told) == 1 and work.done == 2


def test_threads_may_share_it():
    """No byte is lost, and the listener hears one word at a time."""
    inside, most = [], []

    def listener(progress):
        inside.append(1)
        most.append(len(inside))
        inside.pop()

    work = Work("values", 40_000, listener)
    threads = [threading.Thread(target=lambda: [work.advance(1) for _ in range(10_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert work.done == 40_000 and max(most) == 1


def test_what_is_read_again_counts_for_nothing():
    """It ends where the work that it belongs to does."""
    told = []
    work = Work("values", 10, told.append)
    again = work.again()
    again.advance(5)
    assert work.done == 0 and told == [Progress("values", 0, 10)]
    work.stop()
    with pytest.raises(StoppedError):
        again.advance(1)
    assert again.stopped


def test_a_few_reports_are_enough(monkeypatch):
    """What begins and what ends is told at once, everything else ten times a second."""
    told, now = [], [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    hear = now_and_then(lambda each: told.append((each.what, each.done)))
    for what in ("copying", "comparing"):
        for done in range(11):
            hear(Progress(what, done, 10))
    assert told == [("copying", 0), ("copying", 10), ("comparing", 0), ("comparing", 10)]
    hear(Progress("comparing", 0, 10))  # of the next file
    now[0] = 1.0
    hear(Progress("comparing", 1, 10))
    assert told[4:] == [("comparing", 0), ("comparing", 1)]


def test_a_phase_is_heard_in_its_thread_alone():
    """Its beginning, what is counted for it anywhere below, and its end; and an inner one for itself."""
    told = []
    with heard(told.append), phase("outer", 10):
        progress.advance(1)
        with phase("inner", 5):
            progress.advance(2)
        progress.advance(1)
        other = threading.Thread(target=progress.advance, args=(8,))
        other.start()
        other.join()
    progress.advance(100)
    assert [each.done for each in told if each.what == "outer"] == [0, 1, 2, 2]
    assert [each.done for each in told if each.what == "inner"] == [0, 2, 2]


def test_a_phase_does_not_pass_for_done_when_it_was_stopped():
    """Even where the work kept what it had: what is known of a part must not be taken for the whole."""
    wanted = iter([True, False])

    def listener(progress):
        if not next(wanted):
            raise StoppedError

    with pytest.raises(StoppedError), heard(listener), phase("values", 10) as work, pytest.raises(StoppedError):
        work.reach(5)


def test_work_in_a_thread():
    """It says how far it is, and gives what came of it."""

    def do(work):
        work.advance(4)
        return "found"

    told = []
    done = follow(in_thread(do, "values", 4), told.append)
    assert (done.result, done.interrupted, done.progress) == ("found", False, Progress("values", 4, 4, complete=True))
    assert done.complete and done.require() == "found"
    assert told[0] == Progress("values", 0, 4) and told[-1] == Progress("values", 4, 4)


def test_an_error_of_the_thread_is_raised_here():
    """As if the work had been done by whoever waits."""

    def do(work):
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        follow(in_thread(do, "values", 4), lambda progress: None)


def test_ctrl_c_ends_the_work():
    """It hears so at its next word, whether it keeps what it has or not; that is not all, and no result to rely on."""

    def keep(work):
        try:
            while True:
                work.reach(3)
        except StoppedError:
            return "a part"

    def give_up(work):
        while True:
            work.reach(3)

    def press(progress):
        raise KeyboardInterrupt

    for do, result in ((keep, "a part"), (give_up, None)):
        done = follow(in_thread(do, "values", 4), press)
        assert (done.result, done.interrupted, done.progress) == (result, True, Progress("values", 3, 4))
        with pytest.raises(KeyboardInterrupt):
            done.require()


def test_whoever_goes_away_ends_the_work():
    """No thread goes on for nobody."""
    ended = threading.Event()

    def do(work):
        try:
            while True:
                work.go_on()
        except StoppedError:
            ended.set()

    steps = in_thread(do, "values", 4)
    next(steps)
    steps.close()
    assert ended.wait(10)
