"""The newest valid checkpoint of a run is printed, and why newer ones are not."""

from __future__ import annotations

import pytest

from ckptdoctor.runs.latest import search
from tests.runs.generated import make

FLAGS = (
    {"needs_resumable": False, "verified": False},
    {"needs_resumable": True, "verified": False},
    {"needs_resumable": True, "verified": True},
)


def wrong(numbers, folder):
    """What is answered wrongly of these runs: with what was planted, what is right, and what was said."""
    found = []
    for number in numbers:
        (folder / str(number)).mkdir()
        run = make(number, folder / str(number))
        for flags in FLAGS if number % 3 else FLAGS[:2]:
            right = run.newest(resumable=flags["needs_resumable"], verified=flags["verified"])
            said = search(str(run.folder), **flags)
            path = None if said.found is None else said.found.path
            if path != (None if right is None else str(right)):
                found.append((number, run.kind, flags, run.planted, right, path, said.passed_over))
    return found


def test_it_is_right_of_generated_runs(tmp_path):
    """Whatever was planted in them: damage, missing files and ranks, misleading names and times."""
    assert wrong(range(42), tmp_path) == []


@pytest.mark.slow
def test_it_is_right_of_a_thousand(tmp_path):
    """The same at scale."""
    assert wrong(range(1_000, 2_000), tmp_path) == []
