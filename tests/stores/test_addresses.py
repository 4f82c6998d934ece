"""A store on another machine is examined as a local folder is."""

from __future__ import annotations

import os

import fsspec
import pytest

from tests.runs.generated import KINDS, Run, Saved, truncated
from tests.stores.asked import audited, checkpoints


@pytest.fixture
def store(tmp_path):
    """Runs of several kinds with a damaged checkpoint each, here and in a store of fsspec."""
    for kind in ("trainer", "torchtitan", "megatron", "script"):
        run = Run(tmp_path / "s" / kind, kind)
        run.pattern = "step_{}.pt"
        for step in (100, 200):
            run.saved.append(Saved(KINDS[kind](run, step, None), step))
        truncated(run, run.saved[-1], None)
    system = fsspec.filesystem("memory")
    system.put(str(tmp_path / "s"), "/audited", recursive=True)
    yield tmp_path / "s", system
    system.rm("/audited", recursive=True)


def test_a_store_that_fsspec_lists(store, tmp_path):
    """The same checkpoints with the same health, levels and steps; what has changed there is examined again."""
    here, system = store
    audited(here, output=tmp_path / "here.db")
    first = audited("memory://audited", output=tmp_path / "there.db")
    assert (first.examined, first.unlisted) == (8, ())

    def said(database, root):
        return {
            os.path.relpath(path, root): [row[each] for each in ("kind", "step", "health", "level", "tensors", "bytes")]
            for path, row in checkpoints(database).items()
        }

    assert said(tmp_path / "there.db", "memory://audited") == said(tmp_path / "here.db", here)
    assert audited("memory://audited", output=tmp_path / "there.db").examined == 0
    system.pipe("/audited/script/step_100.pt", b"")
    assert audited("memory://audited", output=tmp_path / "there.db").examined == 1
