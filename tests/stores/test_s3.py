"""A bucket of thousands of objects, on a real server that speaks S3: an audit finds the truth that was planted."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest

from ckptdoctor.stores.engines.local import LocalEngine
from tests.runs.generated import in_safetensors, saved, weights
from tests.s3 import served
from tests.stores.asked import audited, rows

MANY, FOLDERS, RUNS, PER = 2_600, 60, 70, 30  # files of one folder; folders of five files; runs of so many files
STATE = b'{"global_step": %d, "epoch": 1.0, "log_history": []}'


def planted():
    """The objects of the bucket by their names, and for each checkpoint its health, step and bytes."""
    tensors = in_safetensors()
    zipped = [saved({"model": weights(seed), "global_step": seed}) for seed in range(PER)]
    objects, truth = {}, {}
    for at in range(MANY):
        data, health = tensors, "clean"
        if at % 97 == 3:
            data, health = tensors[:-9], "broken"
        elif at % 131 == 5:
            data, health = b"", "broken"
        objects[f"many/model_{at}.safetensors"] = data
        truth[f"many/model_{at}.safetensors"] = health, at, len(data)
    for at in range(FOLDERS):
        name = f"trainer/run{at % 10}/checkpoint-{at}"
        files = {"model.safetensors": tensors, "trainer_state.json": STATE % at, "config.json": b"{}"}
        files |= {"scheduler.pt": zipped[0], "rng_state.pth": zipped[0]}
        if at % 37 == 1:
            del files["model.safetensors"]
        objects |= {f"{name}/{each}": data for each, data in files.items()}
        truth[name] = "unfinished" if at % 37 == 1 else "clean", at, sum(map(len, files.values()))
    for run in range(RUNS):
        for at in range(PER):
            data, health = zipped[at], "clean"
            if (run + at) % 41 == 7:
                data, health = zipped[at][: len(zipped[at]) // 2], "broken"
            objects[f"scripts/{run}/step_{at}.pt"] = data
            truth[f"scripts/{run}/step_{at}.pt"] = health, at, len(data)
    return objects, truth


def untrue(database, truth):
    """The checkpoints of which either side does not know, or not the same."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TEMP TABLE truth (path TEXT PRIMARY KEY, health TEXT, step INTEGER, bytes INTEGER)")
        known = [(f"s3://store/{path}", *said) for path, said in truth.items()]
        connection.executemany("INSERT INTO truth VALUES (?, ?, ?, ?)", known)
        found = "SELECT path, health, step, bytes FROM checkpoint"
        lacks, more = f"SELECT * FROM truth EXCEPT {found}", f"{found} EXCEPT SELECT * FROM truth"
        return connection.execute(f"SELECT * FROM ({lacks}) UNION ALL SELECT * FROM ({more})").fetchall()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_bucket_of_thousands_is_as_it_was_planted(tmp_path):
    """Listed page by page and read by two processes; again it asks for listings alone, and finds what has changed."""
    with served(tmp_path) as asked:
        import fsspec

        objects, truth = planted()
        assert 4_900 < len(objects) < 5_100
        system = fsspec.filesystem("s3")
        system.mkdir("store")
        system.pipe({f"store/{name}": data for name, data in objects.items()})

        def audit():
            before = len(asked())
            done = audited("s3://store", output=tmp_path / "store.db", engine=LocalEngine(2))
            return done, re.findall(r'"(GET|HEAD) /store([^ ]*)', asked()[before:])

        first, requests = audit()
        assert untrue(tmp_path / "store.db", truth) == []
        assert (first.listed, first.examined, first.unlisted) == (len(truth), len(truth), ())
        pages = {path for _, path in requests if "list-type=2" in path and "prefix=many/" in path}
        assert len(pages) == 3
        again, requests = audit()
        assert (again.examined, again.unchanged, again.removed) == (0, len(truth), 0)
        assert all("list-type=2" in path for _, path in requests)

        other = saved({"model": weights(99), "global_step": 5})
        assert len(other) == len(objects["scripts/3/step_5.pt"])  # only its ETag tells
        system.pipe("store/scripts/3/step_5.pt", other)
        system.pipe("store/many/model_100.safetensors", b"<html>")
        truth["many/model_100.safetensors"] = "broken", 100, 6
        system.rm("store/many/model_7.safetensors")
        del truth["many/model_7.safetensors"]
        system.rm("store/trainer/run2/checkpoint-12/model.safetensors")
        _, step, size = truth["trainer/run2/checkpoint-12"]
        truth["trainer/run2/checkpoint-12"] = "unfinished", step, size - len(objects["many/model_0.safetensors"])
        contents = "SELECT content FROM checkpoint WHERE path = 's3://store/scripts/3/step_5.pt'"
        before = rows(tmp_path / "store.db", contents)
        changed, _ = audit()
        assert (changed.examined, changed.removed) == (3, 1)
        assert untrue(tmp_path / "store.db", truth) == []
        assert before != rows(tmp_path / "store.db", contents)
