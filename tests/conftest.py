"""Options of the test run, which tests run together, and what every process that tests start takes over from it."""

from __future__ import annotations

import gc
import os
import random
import re
import signal
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

# selenium brings trio, which imports hypothesis where a warning of it would be an error
import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from tests.compiled import compile_once
from tests.libraries import MARKED_ONLY, NEVER_COLLECTED, imported, real
from tests.scale import Scale
from tests.workers import OneFileOneWorker, hear_once_a_test, tell_once_a_test

# several tests run at a time, and keep the cores busy by themselves: torch's own threads would wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")


def _memory():
    """A file system in memory, where it has room for what tests keep there at a time, with some to spare."""
    try:
        found = os.statvfs("/dev/shm")
    except (AttributeError, OSError):  # only Linux has one
        return None
    room = found.f_bavail * found.f_frsize >= 4 << 30 and not found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
    return "/dev/shm" if room and os.access("/dev/shm", os.W_OK) else None


# libraries that would ask a hub for more than what lies on the disk are told not to, before any of them is imported
os.environ["HF_HUB_OFFLINE"] = "1"
for unusual in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):  # commands are started as most people start them
    os.environ.pop(unusual, None)
os.environ["CKPTDOCTOR_HISTORY"] = "0"  # the browser of whoever runs the tests forgets none of their files

# how long an example takes, or takes to make, says more about what else the machine does
too_slow = hypothesis.HealthCheck.too_slow
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[too_slow], derandomize=True)
hypothesis.settings.register_profile("looking further", hypothesis.settings.get_profile("patient"), derandomize=False)
hypothesis.settings.load_profile("patient")

# What waits for other processes, and what takes long, comes first: whatever is left to the end is short
FIRST = ("tests/trainer/", "tests/tui/", "tests/test_samples.py", "tests/cli/", "tests/writing/", "tests/repair/")

# by what the text of a file shows that some of its tests may be slow: the mark, or what brings it
MAY_BE_SLOW = re.compile(r"mark\.slow\b|import .*\b(?:real|PLACES)\b")

# which of the libraries that only marked tests import this process has by now
SEEN = pytest.StashKey[set[str]]()

# when this process began with its first test
BEGUN = pytest.StashKey[float]()


def pytest_addoption(parser):
    """How much of what is asked at scale is asked, and from which seed."""
    group = parser.getgroup("tests at scale")
    group.addoption("--whole", action="store_true", help="ask all that is asked at scale, however long it takes")
    group.addoption("--seed", type=int, default=1, help="where random choices of tests at scale begin")
    group.addoption("--sample-seconds", type=float, default=10.0, help="without --whole: how long each may ask")
    group.addoption(
        "--for", type=float, dest="at_most", help="ask in the order of the seed, and begin none after so many seconds"
    )


@pytest.fixture(scope="session")
def scale(pytestconfig):
    """How many of the thousands of cases of a test at scale are tried."""
    option = pytestconfig.getoption
    return Scale(option("--seed"), None if option("--whole") else option("--sample-seconds"))


def pytest_configure(config):
    """Try the same examples in every run, so that none fails by chance; and others where all is asked.

    Hypothesis also tries what it finds in the source of all modules that a process has loaded by then: others in each
    process, and seconds of reading. That, too, is left to a run that asks all.

    Thousands of tests write 40,000 files, and waited for the disk; slow ones write gigabytes, and stay there.
    """
    if find_spec("torch") is None:
        pytest.exit("The tests need torch, which is not installed: pip install -c constraints.txt -e '.[test]'", 4)
    if config.option.markexpr == "not slow" and "TMPDIR" not in os.environ and (memory := _memory()):
        os.environ["TMPDIR"] = memory
        tempfile.tempdir = None
    if config.getoption("--whole"):
        hypothesis.settings.load_profile("looking further")
    elif hasattr(providers, "_get_local_constants"):
        nothing = providers._local_constants
        providers._get_local_constants = lambda: nothing
    if hasattr(config, "workerinput"):
        tell_once_a_test(config)


def pytest_sessionstart(session):
    """Hear the signals that a shell lets its background jobs ignore, as their children would: tests send them."""
    for name in ("SIGINT", "SIGHUP", "SIGTERM"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)


def pytest_ignore_collect(collection_path, config):
    """Leave the files without slow tests, which are most, where only slow ones are asked: not even import them."""
    ours = config.option.markexpr == "slow" and collection_path.match("test_*.py")
    return True if ours and not MAY_BE_SLOW.search(collection_path.read_text(encoding="utf-8")) else None


def _turn(item):
    """When a test has its turn: the group cannot be shared out, so it begins at once."""
    if real.mark in item.iter_markers("xdist_group"):
        return -1
    return next((at for at, room in enumerate(FIRST) if item.nodeid.startswith(room)), len(FIRST))


def pytest_collection_modifyitems(config, items):
    """Put what one worker does alone, and long rooms, first; what is asked at scale in whole may take its time."""
    for item in items:
        if real.mark in item.iter_markers("xdist_group"):
            item.add_marker(pytest.mark.slow)
    if config.getoption("at_most") is not None:
        files = sorted({item.location[0] for item in items})
        random.Random(config.getoption("--seed")).shuffle(files)
        turn = {file: at for at, file in enumerate(files)}
        items.sort(key=lambda item: (real.mark not in item.iter_markers("xdist_group"), turn[item.location[0]]))
    else:
        items.sort(key=_turn)
    if config.getoption("--whole"):
        for item in items:
            if "scale" in item.fixturenames:
                item.add_marker(pytest.mark.timeout(0))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Nothing of what collecting makes is garbage: whoever looked for some would visit all tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session):
    """Keep the collector from visiting all tests again later, too: what is there now stays until the end.

    So does what little of it is garbage: to look for that once takes a second in each worker. Of what tests make nearly
    all goes as soon as it is no longer used, so the collector looks seldom for the rest.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 20)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Every worker collects all tests: a module that imports what takes seconds by that is an error.

    So is one whose slow tests nobody would see who asks for slow tests alone.
    """
    before = imported(NEVER_COLLECTED)
    report = yield
    if new := imported(NEVER_COLLECTED) - before:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} imports {', '.join(sorted(new))} by being collected; let its tests do it"
    elif collector.config.option.markexpr == "not slow" and _hides_slow(collector, report.result or ()):
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} has slow tests, and nothing that MAY_BE_SLOW in tests/conftest.py finds"
    return report


def _hides_slow(collector, items):
    slow = any(mark.name == "slow" or mark == real.mark for item in items for mark in item.iter_markers())
    return slow and not MAY_BE_SLOW.search(collector.path.read_text(encoding="utf-8"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Of a sample that was given so much time, what was not reached is skipped, and counted."""
    at_most, now = item.config.getoption("at_most"), time.monotonic()
    if at_most is not None and now - item.config.stash.setdefault(BEGUN, now) >= at_most:
        pytest.skip(f"not reached in {at_most:g} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Of several workers only one imports what takes gigabytes: a test without the mark must not."""
    yield
    seen = item.config.stash.setdefault(SEEN, set())
    new = imported(MARKED_ONLY) - seen
    seen |= new
    if new and real.mark not in item.iter_markers("xdist_group"):
        pytest.fail(f"imports {', '.join(sorted(new))}: mark it with “real” of tests.libraries", pytrace=False)


def pytest_xdist_auto_num_workers(config):
    """Two more than there are cores: hundreds of tests wait for processes and keys, and meanwhile others work."""
    return _cores() + 2


def _cores():
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def pytest_xdist_setupnodes(config, specs):
    """In a fresh clone, compile what tests import once: the workers begin together, and each would compile it all."""
    compiled = f"__pycache__/*.{sys.implementation.cache_tag}-pytest-*.pyc"
    if len(specs) > 1 and not sys.dont_write_bytecode and not any((Path(__file__).parent / "cli").glob(compiled)):
        compile_once(config.rootpath, config.args, _cores())


def pytest_configure_node(node):
    """Understand what the workers say."""
    hear_once_a_test(node)


def pytest_xdist_make_scheduler(config, log):
    """Distribute tests by files and by the mark ``xdist_group``."""
    return OneFileOneWorker(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_terminal_summary(terminalreporter, config):
    """Say from which seed tests at scale took their samples, so that a failure can be had again."""
    if config.option.markexpr == "not slow":
        return
    option = config.getoption
    how = "whole" if option("--whole") else f"as samples of {option('--sample-seconds'):g} s (--whole runs them whole)"
    terminalreporter.write_line(f"tests at scale ran {how}, with --seed {option('--seed')}")
    if option("at_most") is not None:
        skipped = terminalreporter.stats.get("skipped", [])
        left = sum("not reached in" in str(report.longrepr) for report in skipped)
        terminalreporter.write_line(f"{left} tests were not reached in {option('at_most'):g} s: other seeds ask others")
