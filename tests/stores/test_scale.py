"""Stores of any size: what an audit finds is the truth that was planted, and its requests do not grow faster."""

from __future__ import annotations

import tracemalloc

import fsspec
import pytest

from ckptdoctor.stores import schema
from ckptdoctor.stores.engines.engine import Done
from ckptdoctor.stores.examine import failed, rows_of
from ckptdoctor.stores.listing import Walk, unit_of
from tests.runs.generated import adam, in_safetensors, saved, weights
from tests.stores import simulated
from tests.stores.asked import Here, audited, rows
from tests.stores.simulated import SimulatedStore, installed, truth


@pytest.fixture(scope="module", autouse=True)
def _known(tmp_path_factory):
    installed(tmp_path_factory.mktemp("known"))


def untrue(database):
    """The checkpoints of which an inventory says something else than the truth."""
    found = rows(database, "SELECT path, level, step, trouble, error FROM checkpoint")
    assert found
    return [each for each in found if (each["level"] is not None, each["step"]) != truth(each["path"])]


def test_what_is_found_is_what_was_planted(tmp_path):
    """Files of 100 GB, cut ones, pages of a login, folders that lack a file, connections that break."""
    done = audited("simulated://7-9-16", output=tmp_path / "store.db")
    assert (done.listed, done.examined) == (144, 144)
    assert untrue(tmp_path / "store.db") == []
    (bad,) = rows(
        tmp_path / "store.db", "SELECT count(*) AS count, max(bytes) AS most FROM checkpoint WHERE level IS NULL"
    )
    assert bad["count"] > 3
    (largest,) = rows(tmp_path / "store.db", "SELECT max(bytes) AS most FROM checkpoint")
    assert largest["most"] > 90e9


def test_a_second_audit_asks_for_listings_only(tmp_path):
    """Nothing is opened that has not changed."""
    audited("simulated://7-6-20", output=tmp_path / "store.db")
    before = dict(SimulatedStore.requests)
    done = audited("simulated://7-6-20", output=tmp_path / "store.db")
    assert done.unchanged == 120 and done.examined == 0
    assert SimulatedStore.requests["get"] == before["get"]


def test_a_store_is_connected_to_once(tmp_path, monkeypatch):
    """Not for each of its folders and files: fsspec takes longer to find a file system than a listing takes."""
    made = []
    real = SimulatedStore.__init__

    def init(self, *args, **kwargs):
        made.append(args)
        real(self, *args, **kwargs)

    monkeypatch.setattr(SimulatedStore, "__init__", init)
    done = audited("simulated://7-6-20", output=tmp_path / "store.db")
    assert done.examined == 120 and len(made) == 1


@pytest.mark.parametrize(
    ("kind", "most"),
    [("safetensors", {"ls": 0, "info": 0, "get": 1}), ("torch", {"ls": 0, "info": 0, "get": 1}),
     ("trainer", {"ls": 1, "info": 0, "get": 5})],
)  # fmt: skip
def test_requests_of_a_checkpoint_are_few(kind, most, tmp_path):
    """However large it is: nothing is asked that the listing has said, and no file is fetched twice."""
    number = next(run for run in range(3) if simulated.kind(run) == kind)
    every = [at for at in range(40) if simulated.planted(number, at, 7) == ("", "")]
    before = dict(SimulatedStore.requests)
    store = f"simulated://7-3-{every[-1] + 1}/team0/run{number}"
    done = audited(store, output=tmp_path / "store.db")
    faulty = done.listed - len(every)
    assert done.listed > 30 and faulty < 6
    asked = {name: count - before[name] for name, count in SimulatedStore.requests.items()}
    ahead = {"ls": 2, "info": 0, "get": 0}  # the listing of the run; what is not valid is asked once more
    for name, count in asked.items():
        assert count <= done.listed * most[name] + ahead[name] + 12 * faulty, name


def test_what_was_replaced_since_it_was_listed_is_not_called_broken(tmp_path, monkeypatch):
    """The size that the listing said is asked again before anything is said to be wrong."""
    system = fsspec.filesystem("memory")
    system.pipe("/replaced/run/step_1.pt", saved({"model": weights(), "iter_num": 1}))
    system.pipe("/replaced/hf/checkpoint-5/model.safetensors", in_safetensors())
    system.pipe("/replaced/hf/checkpoint-5/trainer_state.json", b'{"global_step": 5}')
    units = list(Walk("memory://replaced").units())
    system.pipe("/replaced/run/step_1.pt", saved({"model": weights(), "optimizer": adam(), "iter_num": 2}))
    system.pipe("/replaced/hf/checkpoint-5/model.safetensors", in_safetensors("layers.0"))
    try:
        for each in units:
            rows = rows_of(each, set())
            assert rows["checkpoint_shared"][0][schema.COLUMNS["checkpoint_shared"].index("level")] is not None
    finally:
        system.rm("/replaced", recursive=True)


def test_folders_are_listed_several_at_once(tmp_path, monkeypatch):
    """Where an answer takes a while; each is still asked for once, and all are found."""
    audited("simulated://7-9-16", output=tmp_path / "a.db")
    monkeypatch.setenv("SIMULATED_LATENCY", "0.05")
    now, most = [], []
    real = SimulatedStore.ls

    def ls(self, *args, **kwargs):
        now.append(args)
        most.append(len(now))
        try:
            return real(self, *args, **kwargs)
        finally:
            now.pop()

    monkeypatch.setattr(SimulatedStore, "ls", ls)
    units = list(Walk("simulated://7-9-16").units())
    assert len(most) == 2 + 9 + 3 * 16 and max(most) > 4
    assert {each.candidate.path: each.signature for each in units} == {
        each["path"]: each["signature"] for each in rows(tmp_path / "a.db", "SELECT path, signature FROM checkpoint")
    }


class Unread(Here):
    """An engine that examines nothing: what is left of an audit is listing and writing."""

    def submit(self, number, batch):
        """Say of each that it failed."""
        self.done += [Done(number, (failed(unit_of(each), "it was not read"),)) for each in batch.units]
        self.done.append(Done(number, over=True))


def most_kept(store, output):
    """The bytes of Python objects that there are at once, at most, while a store is audited."""
    tracemalloc.start()
    try:
        done = audited(store, output=output, engine=Unread())
        return tracemalloc.get_traced_memory()[1], done
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True], ids=["first", "second"])
def test_a_larger_store_takes_no_more_memory(again, tmp_path):
    """What is known of its checkpoints is on disk, and SQLite has a cache of one size: a set of ids would be seen."""
    small, large = "simulated://7-100-20", "simulated://7-600-20"
    audited(small, output=tmp_path / "small.db", engine=Unread())  # what is imported and kept once comes before
    if again:
        audited(large, output=tmp_path / "large.db", engine=Unread())
    before, _ = most_kept(small, tmp_path / "small.db")
    after, done = most_kept(large, tmp_path / "large.db")
    assert (done.listed, done.examined) == (12_000, 0 if again else 12_000)
    assert after - before < 40 * 10_000, (before, after)


@pytest.mark.slow
def test_tens_of_thousands_are_as_they_were_planted(tmp_path):
    """By several processes, in one database."""
    from ckptdoctor.stores.engines.local import LocalEngine

    done = audited("simulated://11-1000-20", output=tmp_path / "store.db", engine=LocalEngine(2))
    assert done.examined == 20_000 and untrue(tmp_path / "store.db") == []
