"""Options of the test run."""

from __future__ import annotations

# selenium brings trio, which imports hypothesis where a warning of it would be an error
import hypothesis  # noqa: F401


def pytest_addoption(parser):
    """How long, and from which seed, the fuzzer runs."""
    parser.addoption("--fuzz-seconds", type=float, default=15.0, help="how long the mutation fuzzer runs")
    parser.addoption("--fuzz-seed", type=int, default=1, help="the first seed of the mutation fuzzer")
