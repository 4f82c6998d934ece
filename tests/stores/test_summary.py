"""The summary of an audit says what the tables hold, counted one row after the other."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter, defaultdict
from contextlib import closing

import pytest
import torch

from ckptdoctor.stores.schema import create, open_inventory
from ckptdoctor.stores.summary import summary_of
from tests.commands import run_here
from tests.runs.generated import adam, in_safetensors, saved, weights, write
from tests.stores.asked import checkpoints, generated, rows


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What ``audit`` prints as JSON of a store with faults and copies, and its database."""
    folder = tmp_path_factory.mktemp("summary")
    generated(folder / "s", range(3, 24))
    write(folder / "s" / "copies" / "step_1.pt", saved({"model": weights(), "optimizer": adam(), "iter_num": 1}))
    for name in ("b", "c"):
        shutil.copy(folder / "s" / "copies" / "step_1.pt", folder / "s" / "copies" / f"{name}.pt")
    write(folder / "s" / "tuned" / "final.pt", saved({"state_dict": weights()}))
    write(folder / "s" / "coarse" / "step_9.pt", saved({"w": torch.full((300, 100), 0.5), "iter_num": 8}))
    for step in (1, 2):
        moved = weights(1) | {"layers.1.weight": torch.full((2, 2), float(step))}
        write(folder / "s" / "moved" / f"step_{step}.pt", saved({"model": moved, "iter_num": step}))
    write(folder / "s" / "damaged" / "step_1.safetensors", in_safetensors()[:-1])
    write(folder / "s" / "damaged-more" / "step_1.safetensors", in_safetensors()[:-1])
    result = run_here("audit", "s", "--jobs", "1", "--deep", "all", "--format", "json", cwd=folder)
    return json.loads(result.stdout), folder / "store.db"


def test_totals(both):
    """Numbers and bytes of all checkpoints, and those of each health."""
    said, database = both
    found = list(checkpoints(database).values())
    assert said["checkpoints"] == len(found) > 50
    assert said["runs"] == len({each["run"] for each in found})
    for name in ("bytes", "resumable", "optimizer_bytes"):
        assert said[name] == sum(each[name] or 0 for each in found) > 0
    assert said["health"] == Counter(each["health"] for each in found)
    wasted = [each["wasted_bytes"] for each in found if each["wasted_bytes"]]
    assert said["wasted"] == {"checkpoints": len(wasted), "bytes": sum(wasted)} and wasted
    assert said["disagreements"] == sum(each["disagreement"] != "" for each in found) > 0
    errors = sorted((each["path"], each["error"]) for each in found if each["error"] is not None)
    assert [(each["path"], each["error"]) for each in said["errors"]] == errors


def test_problems(both):
    """Each kind with how many checkpoints have it; its example is the worst of them, and the first by its path."""
    said, database = both
    found = defaultdict(list)
    for each in rows(database, "SELECT * FROM findings WHERE severity != 'info' ORDER BY severity, path, number"):
        found[each["code"]].append(each)
    expected = [
        (code, each[0]["severity"], len({one["checkpoint"] for one in each}), each[0]["path"], each[0]["message"])
        for code, each in found.items()
    ]
    expected.sort(key=lambda each: (each[1] != "error", -each[2], each[0]))
    columns = ("code", "severity", "checkpoints", "example", "message")
    assert [tuple(each[name] for name in columns) for each in said["problems"]] == expected
    assert len(expected) > 5 and {each[1] for each in expected} == {"error", "warning"}


def test_space(both):
    """The runs that take most, and all owners."""
    said, database = both
    for name, column, most in (("by_run", "run_path", 10), ("by_owner", "owner", 10)):
        taken = defaultdict(list)
        for each in rows(database, "SELECT * FROM checkpoints"):
            taken[each[column]].append(each)
        columns = ("bytes", "blocks", "optimizer_bytes")
        made = [
            {"name": key, "checkpoints": len(some), **{each: sum(row[each] for row in some) for each in columns}}
            for key, some in taken.items()
        ]
        made.sort(key=lambda each: (-each["bytes"], each["name"]))
        assert said[name] == made[:most]


def test_what_is_there_twice(both):
    """Copies by their contents, and checkpoints of other contents with the same weights."""
    said, database = both
    found = list(checkpoints(database).values())
    for name, column in (("duplicates", "content"), ("same_weights", "weights")):
        groups = defaultdict(list)
        for each in found:
            if each[column] is not None:
                groups[each[column]].append(each)
        different = "id" if column == "content" else "content"
        several = [some for some in groups.values() if len({one[different] or one["id"] for one in some}) > 1]
        spare = [sum(one["bytes"] for one in some) - max(one["bytes"] for one in some) for some in several]
        most = min(zip(spare, several, strict=True), key=lambda each: (-each[0], each[1][0][column]))[1]
        assert said[name]["groups"] == len(several) > 0
        assert said[name]["spare_checkpoints"] == sum(len(some) - 1 for some in several)
        assert said[name]["spare_bytes"] == sum(spare)
        assert said[name]["example"] == sorted(one["path"] for one in most)[:2]


def test_runs_with_tensors_that_never_changed(both):
    """Of runs in which some, but not all of them, are the same in every checkpoint."""
    said, _ = both
    assert "moved" in {os.path.basename(each["run"]) for each in said["unchanged_tensors"]}
    assert all(0 < len(each["keys"]) < each["of"] for each in said["unchanged_tensors"])


def test_it_tells_one_moment(both, tmp_path):
    """Another process may write into the inventory between any two of its queries."""
    shutil.copy(both[1], tmp_path / "store.db")
    with closing(open_inventory(str(tmp_path / "store.db"))) as connection:
        before = summary_of(connection)
        with closing(create(str(tmp_path / "store.db"))) as other:

            def meddle(statement):
                if "count(DISTINCT alike.run)" in statement:
                    for table in ("finding_shared", "problem", "checkpoint_shared", "run"):
                        other.execute(f"DELETE FROM {table}")
                    other.commit()

            connection.set_trace_callback(meddle)
            assert summary_of(connection) == before
            connection.set_trace_callback(None)
        assert summary_of(connection) != before
