"""A run that is killed while it saves still has its last complete checkpoint."""

from __future__ import annotations

import json
import os

import pytest

from tests.trainer.forks import Forked
from tests.trainer.snapshot import killing

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")


def killed(out, how):
    """What was found after each kill."""
    process = Forked(killing.main, out / "run", how)
    said, complaint = process.communicate(timeout=120)
    assert process.returncode == 0, complaint
    return json.loads(said)


def test_at_each_change_on_the_disk(tmp_path):
    """Killed before each change: until the new folder has its name the old one is the newest, then the new one."""
    *kills, last = killed(tmp_path, "boundaries")
    assert {end["status"] for end in kills} == {-9}
    assert len(kills) >= 12  # a folder, four files, six syncs, a name
    assert (last["status"], last["epochs"]) == (0, [1, 2])
    seen = [(end["newest"], end["best"]) for end in kills]
    named = seen.index(("epoch-0002", 0.75))
    assert set(seen[:named]) == {("epoch-0001", 0.5)}
    assert set(seen[named:]) == {("epoch-0002", 0.75)}
    assert any("epoch-0002.partial" in end["before"] for end in kills)
    for end in [*kills, last]:
        assert all("." not in name for name in end["swept"])


def test_while_replacing_a_folder_of_the_same_name(tmp_path):
    """Killed while a checkpoint takes the place of another: one of the two is there at every moment, never none."""
    *kills, last = killed(tmp_path, "again")
    assert {end["status"] for end in kills} == {-9}
    assert last["best"] == 0.75
    seen = [end["best"] for end in kills]
    assert set(seen) == {0.5, 0.75}
    assert seen == sorted(seen)
    assert all(end["swept"] == ["epoch-0001"] for end in [*kills, last])


def test_at_any_moment(tmp_path):
    """Killed from outside again and again, a run that goes on each time only ever moves forward."""
    ends = killed(tmp_path, "moments")
    assert {end["status"] for end in ends} == {-9}
    counts = [len(end["epochs"]) for end in ends]
    assert counts == sorted(counts)
    assert counts[-1] > killing.ENOUGH_EPOCHS
    for end in ends:
        assert end["epochs"] == list(range(1, len(end["epochs"]) + 1))
        assert end["best"] == (len(end["epochs"]) / 1000 or None)
        assert all("." not in name for name in end["swept"])
    assert any(name.endswith(".partial") for end in ends for name in end["before"])
