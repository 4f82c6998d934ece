"""Leaving nothing behind."""

from __future__ import annotations

import pytest

from tests.trainer.launch.helpers import end_all


@pytest.fixture(autouse=True)
def nothing_left_running():
    """Processes that a test started do not outlive it."""
    yield
    end_all()
