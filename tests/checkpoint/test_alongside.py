"""Work in a fork of a process: what comes of it, and of what fails. Asked of processes that have no other threads."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.commands import PATIENCE

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="nothing is forked here"
)

BEGIN = """
import os, signal, sys, threading, time
from ckptdoctor.checkpoint import process
from ckptdoctor.checkpoint.alongside import WORTH, alongside
process.take()
HERE = os.getpid()
"""


def said(script: str, status: int = 0) -> str:
    """What a process of the command line's kind says that runs a script."""
    code = BEGIN + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == status, done.stderr
    assert not done.stderr
    return done.stdout.strip()


def test_an_answer_comes_from_another_process_with_what_was_read_here():
    """Plain values, as they are; and no process is left behind."""
    script = """
    held = {"weights": [1, 2]}
    with alongside(lambda: (os.getpid(), held["weights"], "é", b"\\0", None), WORTH) as told:
        held.clear()
    number, *rest = told()
    print(number != HERE, rest, told()[0] == number)
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        print("all have ended")
    """
    assert said(script) == "True [[1, 2], 'é', b'\\x00', None] True\nall have ended"


@pytest.mark.parametrize(
    "before",
    [
        "import threading; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        "import _thread; _thread.start_new_thread(time.sleep, (9,)); time.sleep(0.05)",
        "sys.modules['numpy'] = os",
        "os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])",
        "process._State.own = False",
        "WORTH -= 1",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
        "os.fork = lambda: os.open('', 0)",
    ],
)
def test_where_a_fork_would_not_do_the_work_is_done_here_and_first(before: str):
    """Threads of others, libraries with threads, one core, somebody else's process, little work, nothing to be had."""
    script = """
    order = []
    with alongside(lambda: order.append("work") or os.getpid(), WORTH) as told:
        order.append("meanwhile")
    print(told() == HERE, order)
    """
    assert said(before + textwrap.dedent(script)).endswith("True ['work', 'meanwhile']")


@pytest.mark.parametrize("name", ["ckptdoctor-line", "ckptdoctor-sync"])
def test_threads_of_our_own_that_do_no_harm_are_no_hindrance(name: str):
    """The one that draws the line, and the one that waits for the disk."""
    script = f"""
    threading.Thread(target=time.sleep, args=(9,), daemon=True, name={name!r}).start()
    with alongside(os.getpid, WORTH) as told:
        pass
    print(told() != HERE)
    os._exit(0 if not sys.stdout.flush() else 1)
    """
    assert said(script) == "True"


@pytest.mark.parametrize("meanwhile", ["pass", "raise RuntimeError('what came after')", "told()"])
def test_what_fails_in_the_fork_fails_here(meanwhile: str):
    """With its own words, and before whatever has failed meanwhile."""
    script = f"""
    def work():
        raise ValueError("of the work")
    try:
        with alongside(work, WORTH) as told:
            {meanwhile}
    except ValueError as error:
        print(error)
    """
    assert said(script) == "of the work"


@pytest.mark.parametrize(
    "death", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)", "sys.exit()", "recurse()"]
)
def test_work_is_done_here_where_the_fork_ends_without_an_answer(death: str):
    """Killed, out of memory, or whatever else."""
    script = f"""
    def recurse():
        recurse()
    def work():
        if os.getpid() != HERE:
            {death}
        return "done"
    with alongside(work, WORTH) as told:
        pass
    print(told())
    """
    assert said(script) == "done"


def test_a_fork_says_nothing():
    """What it would print or warn of is for the process that tells it: there a thread may be drawing a line."""
    script = """
    def work():
        print("out")
        print("err", file=sys.stderr)
        return sys.stdout is None
    with alongside(work, WORTH) as told:
        print("meanwhile")
    print(told())
    """
    assert said(script) == "meanwhile\nTrue"


def test_ctrl_c_ends_the_fork_with_us():
    """The process waits for nothing, and the fork is gone."""
    script = """
    def work():
        time.sleep(20)
    begun = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(HERE, signal.SIGINT))
    try:
        with alongside(work, WORTH):
            time.sleep(20)
    except KeyboardInterrupt:
        print(time.monotonic() - begun < 5)
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        print("gone")
    """
    assert said(script) == "True\ngone"


def test_signals_for_the_fork_clear_nothing_up_that_is_ours():
    """It was told to end like any process that has opened nothing: our handlers would remove our files."""
    script = """
    def end(number, frame):
        print("cleared up")
    signal.signal(signal.SIGTERM, end)
    def work():
        if os.getpid() != HERE:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(20)
        return "done here"
    with alongside(work, WORTH) as told:
        pass
    print(told())
    """
    assert said(script) == "done here"
