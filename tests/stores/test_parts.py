"""A checkpoint that is too large for one process is read in parts, and its rows are those of one process."""

from __future__ import annotations

import gzip
import json
import os

import pytest
import safetensors.torch
import torch

from ckptdoctor.stores import order
from ckptdoctor.stores.audit import AuditRequest, audit
from ckptdoctor.stores.engines.local import LocalEngine
from tests.commands import run_here
from tests.runs.generated import flipped, in_safetensors, saved, weights, write
from tests.stores.asked import Here, audited, checkpoints, generated, rows, table

PART = 4_000  # bytes


class Two(Here):
    """An engine of two workers in this process, which notes what parts were asked for."""

    workers = 2

    def __init__(self, poison=()):
        super().__init__(poison)
        self.parts = []
        self.known = set()

    def submit(self, number, batch):
        """Note it, and read it at once."""
        if batch.part is not None:
            self.parts.append((batch.units[0][0][0], batch.part))
        super().submit(number, batch)


@pytest.fixture
def small(monkeypatch):
    """What is large is so from a few kB on."""
    monkeypatch.setattr(order, "SPLIT", PART)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Runs of each kind with damaged bytes and values, and files of which parts are odd to read."""
    folder = tmp_path_factory.mktemp("store") / "runs"
    generated(folder, range(3, 9))
    shared = torch.rand(40, 50)
    odd = {
        "tied": {"a": shared, "b": shared, "c": shared[:10], "d": shared.t(), "e": torch.rand(60, 60)},
        "sparse": {"s": torch.rand(40, 40).to_sparse(), "w": torch.rand(50, 50), "f": torch.rand(50, 50).double()},
        "nan": {"a": torch.rand(40, 40), "b": torch.full((40, 40), float("nan")), "empty": torch.rand(0, 3)},
        "halves": {"a": torch.rand(40, 40).bfloat16().float(), "b": torch.rand(40, 40).bfloat16().float()},
    }
    for name, tensors in odd.items():
        write(folder / "odd" / f"{name}.pt", saved({"state_dict": tensors}))
    write(folder / "odd" / "packed.pt.gz", gzip.compress(saved(weights())))
    write(folder / "odd" / "damaged.pt", saved({"a": torch.rand(40, 40), "b": torch.rand(40, 40)}))
    flipped(folder / "odd" / "damaged.pt", 9_000)
    write(folder / "odd" / "model.safetensors", in_safetensors())
    return folder


@pytest.fixture(scope="module")
def right(store, tmp_path_factory):
    """The inventory that one process makes."""
    path = tmp_path_factory.mktemp("right") / "right.db"
    audited(store, output=path, deep="all")
    return path


def test_parts_make_the_same_rows(store, right, small, tmp_path):
    """Whatever is in them; each part is read once, and most of the checkpoints have several."""
    engine = Two()
    done = audited(store, output=tmp_path / "a.db", deep="all", engine=engine)
    assert table(tmp_path / "a.db") == table(right)
    assert done.examined == done.listed and len(set(engine.parts)) == len(engine.parts)
    assert len({path for path, (_, of) in engine.parts if of > 2}) > 10
    query = "SELECT code FROM findings WHERE checkpoint_path LIKE '%/odd/%'"
    codes = {each["code"] for each in rows(tmp_path / "a.db", query)}
    assert codes >= {"F009", "V651", "T554"}


def test_their_findings_are_those_of_check(store, small, tmp_path):
    """Word for word."""
    audited(store / "odd", output=tmp_path / "a.db", deep="all", engine=Two())
    files = sorted(each for each in checkpoints(tmp_path / "a.db") if not each.endswith(".gz"))
    said = json.loads(run_here("check", "--deep", "--format", "json", *files, cwd=tmp_path).stdout)
    for report in said["files"]:
        wanted = [(each["code"], each["severity"], each["message"], each["cause"]) for each in report["findings"]]
        found = rows(tmp_path / "a.db", "SELECT * FROM findings WHERE path = ? ORDER BY number", report["path"])
        assert [(each["code"], each["severity"], each["message"], each["cause"]) for each in found] == wanted
    assert len(said["files"]) == 6


def test_what_was_read_in_parts_is_not_read_again(small, tmp_path, monkeypatch):
    """Whoever puts the parts together reads no values, and no bytes for checksums."""
    write(tmp_path / "x" / "model.safetensors", in_safetensors())
    monkeypatch.setattr("ckptdoctor.examine.shares.read_everything", None)
    engine = Two()
    audited(tmp_path / "x", output=tmp_path / "a.db", deep="all", engine=engine)
    (row,) = checkpoints(tmp_path / "a.db").values()
    assert len(engine.parts) > 1 and (row["error"], row["deep"]) == (None, 1) and row["content"] is not None


@pytest.mark.parametrize("name", ["step_1.pt", "model.safetensors"])
def test_what_changes_meanwhile_is_read_again(name, small, tmp_path):
    """Parts of one file and of another are never put together, nor are their checksums."""
    path = tmp_path / "x" / name
    contents = [
        saved(weights(seed)) if name.endswith(".pt") else safetensors.torch.save(weights(seed)) for seed in (1, 2)
    ]
    write(path, contents[0])
    engine = Two()
    submit = engine.submit

    def replacing(number, batch):
        if batch.part is not None and batch.part[0] == 1:
            path.write_bytes(contents[1])
            os.utime(path, ns=(1, 1))
        submit(number, batch)

    engine.submit = replacing
    audited(tmp_path / "x", output=tmp_path / "a.db", deep="all", engine=engine)
    audited(tmp_path / "x", output=tmp_path / "b.db", deep="all")
    query = "SELECT content, weights, levels FROM checkpoint"
    found = rows(tmp_path / "a.db", query)
    assert found == rows(tmp_path / "b.db", query) and found[0]["content"] and len(engine.parts) > 1


def test_a_part_that_kills_stands_for_its_checkpoint(small, tmp_path):
    """Twice: then it is a row with the reason, and the other parts are not waited for."""
    for at in range(3):
        write(tmp_path / "x" / f"step_{at}.pt", saved(weights(at)))
    poison = str(tmp_path / "x" / "step_1.pt")
    engine = Two({poison})
    done = audited(tmp_path / "x", output=tmp_path / "a.db", deep="all", engine=engine)
    found = checkpoints(tmp_path / "a.db")
    assert found[poison]["error"] == "It could not be examined: it was poison." and done.examined == 3
    assert [row["deep"] for path, row in found.items() if path != poison] == [1, 1]


def test_processes_and_shards_make_the_same_rows(store, small, tmp_path):
    """A process that is killed while it reads a part loses nothing."""
    audited(store / "odd", output=tmp_path / "right.db", deep="all")
    killed = []
    for number in (1, 2):
        engine = LocalEngine(2)
        take = engine._hand_out

        def hand_out(engine=engine, take=take):
            take()
            for worker in engine._pool:
                if worker.number is not None and worker._batch.part is not None and not killed:
                    killed.append(worker._batch.part)
                    worker._process.kill()

        engine._hand_out = hand_out
        request = AuditRequest((str(store / "odd"),), str(tmp_path / "a.db"), deep="all", shard=(number, 2))
        audit(request, engine)
    assert killed and table(tmp_path / "a.db") == table(tmp_path / "right.db")
