"""The newest valid checkpoint of a run is printed, and why newer ones are not."""

from __future__ import annotations

import pytest

from ckptdoctor.runs.latest import search
from tests.runs.generated import KINDS, Run, Saved, make, truncated

FLAGS = (
    {"needs_resumable": False, "verified": False},
    {"needs_resumable": True, "verified": False},
    {"needs_resumable": True, "verified": True},
)


def wrong(numbers, folder, *, every=False):
    """What is answered wrongly of these runs: with what was planted, what is right, and what was said.

    Each is asked with one set of options, or with ``every`` one.
    """
    found = []
    for number in numbers:
        (folder / str(number)).mkdir()
        run = make(number, folder / str(number))
        for flags in FLAGS if every else (FLAGS[number // len(KINDS) % len(FLAGS)],):
            right = run.newest(resumable=flags["needs_resumable"], verified=flags["verified"])
            said = search(str(run.folder), **flags)
            path = None if said.found is None else said.found.path
            if path != (None if right is None else str(right)):
                found.append((number, run.kind, flags, run.planted, right, path, said.passed_over))
    return found


def test_it_is_right_of_generated_runs(tmp_path):
    """Whatever was planted in them: damage, missing files and ranks, misleading names and times."""
    assert wrong(range(63), tmp_path) == []


@pytest.mark.slow
def test_it_is_right_of_a_thousand(tmp_path):
    """The same at scale."""
    assert wrong(range(1_000, 2_000), tmp_path, every=True) == []


def names(found):
    """The names of what was passed over."""
    return [each.name for each in found.passed_over]


@pytest.mark.parametrize("kind", ["trainer", "torchtitan", "deepspeed", "megatron", "lightning"])
def test_runs_on_other_machines(kind, tmp_path):
    """A store that fsspec lists is asked as a local folder is."""
    import fsspec

    run = Run(tmp_path, kind)
    for step in (100, 200, 300):
        run.saved.append(Saved(KINDS[kind](run, step, None), step))
    truncated(run, run.saved[-1], None)
    store = fsspec.filesystem("memory")
    store.put(f"{tmp_path}/", f"/bucket/{kind}/", recursive=True)
    found = search(f"memory://bucket/{kind}", needs_resumable=True)
    right = f"memory://bucket/{kind}/{run.saved[1].path.relative_to(tmp_path).as_posix()}"
    assert (found.found.path, len(found.passed_over)) == (right, 1)
