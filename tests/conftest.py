"""Options of the test run, and what every process that tests start takes over from it."""

from __future__ import annotations

import os
import signal

# selenium brings trio, which imports hypothesis where a warning of it would be an error
import hypothesis

# several tests run at a time, and keep the cores busy by themselves: torch's own threads would wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")

# how long an example takes, or takes to make, says more about what else the machine does
too_slow = hypothesis.HealthCheck.too_slow
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[too_slow])
hypothesis.settings.load_profile("patient")


def pytest_addoption(parser):
    """How long, and from which seed, the fuzzer runs."""
    parser.addoption("--fuzz-seconds", type=float, default=15.0, help="how long the mutation fuzzer runs")
    parser.addoption("--fuzz-seed", type=int, default=1, help="the first seed of the mutation fuzzer")


def pytest_sessionstart(session):
    """Hear the signals that a shell lets its background jobs ignore, as their children would: tests send them."""
    for name in ("SIGINT", "SIGHUP", "SIGTERM"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)
