"""An inventory is small, names every file as it is called, and says so where another version wrote it."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing

import pytest

import ckptdoctor
from ckptdoctor.errors import UnreadableError
from ckptdoctor.stores import schema
from ckptdoctor.stores.examine import rows_of
from ckptdoctor.stores.listing import Walk
from ckptdoctor.stores.writer import Writer
from tests.commands import run_here
from tests.runs.generated import adam, in_safetensors, saved, weights, write
from tests.stores.asked import audited, below, checkpoints, rows

MANY = 4_000
MOST = 400  # bytes of a checkpoint


@pytest.mark.parametrize("kind", ["weights", "training", "safetensors"])
def test_a_checkpoint_takes_few_bytes(kind, tmp_path):
    """Among thousands that have no content in common, with the files and findings of each."""
    tensors = {f"layers.{at}.weight": each for at in range(16) for each in list(weights(at).values())[:1]}
    path = tmp_path / "runs" / "a_run_of_a_team" / f"step_100000.{'pt' if kind != 'safetensors' else kind}"
    made = {"weights": tensors, "training": {"model": tensors, "optimizer": adam(), "iter_num": 1}}
    write(path, in_safetensors() if kind == "safetensors" else saved(made[kind]))
    (unit,) = Walk(str(tmp_path)).units()
    one = rows_of(unit, set())
    drawn = random.Random(5)

    def another(row, at, table):
        said = dict(zip(schema.COLUMNS[table], row, strict=True))
        said |= {"id": ids[at]} if "id" in said else {"checkpoint": ids[at]}
        if table == "checkpoint_own":
            said |= {"name": f"/step_{100_000 + at}.pt", "signature": drawn.getrandbits(62)}
            said |= {name: drawn.getrandbits(62) for name in ("content", "weights") if said[name] is not None}
        if said.get("contents"):
            said["contents"] = drawn.randbytes(len(said["contents"]))
        return tuple(said[each] for each in schema.COLUMNS[table])

    ids = [drawn.getrandbits(62) for _ in range(MANY)]
    with closing(Writer(str(tmp_path / "a.db"))) as writer:
        writer.write(one)
        for at in range(MANY):
            own = {table: [another(row, at, table) for row in one[table]] for table in ("checkpoint_own", "object")}
            writer.write(own | {"member_own": [another(row, at, "member_own") for row in one["member_own"]]})
        writer.commit()
        writer.compact()
        assert writer.checkpoints == MANY + 1
    assert (tmp_path / "a.db").stat().st_size / MANY < MOST


def test_every_file_is_named_as_it_is_called(tmp_path):
    """In a folder, in folders below it, next to the checkpoint, and of a run that is one checkpoint itself."""
    run = tmp_path / "s" / "run"
    write(run / "checkpoint-5" / "model.safetensors", in_safetensors())
    write(run / "checkpoint-5" / "trainer_state.json", {"global_step": 5})
    write(run / "checkpoint-5" / "global_step5" / "mp_rank_00_model_states.pt", saved({"module": weights()}))
    write(tmp_path / "s" / "lora" / "adapter_model.safetensors", in_safetensors())
    write(tmp_path / "s" / "lora" / "adapter_config.json", {"base_model_name_or_path": "x/y"})
    write(tmp_path / "s" / "script" / "model_7.pt", saved(weights()))
    write(tmp_path / "s" / "script" / "optim_7.pt", saved(adam()))
    write(tmp_path / "s" / "script" / "model_8.pt", saved(weights()))
    ckptdoctor.seal(tmp_path / "s" / "script" / "model_8.pt")
    for store, database in ((tmp_path / "s", "a.db"), (run / "checkpoint-5", "b.db")):
        audited(store, output=tmp_path / database)
        assert sorted(each["path"] for each in rows(tmp_path / database, "SELECT path FROM files")) == [
            *map(str, below(store))
        ]
        for each in rows(tmp_path / database, "SELECT path FROM member"):
            assert os.path.exists(each["path"])
        assert all(os.path.exists(path) for path in checkpoints(tmp_path / database))
    members = {each["path"] for each in rows(tmp_path / "a.db", "SELECT path FROM member")}
    assert {str(tmp_path / "s" / "script" / "optim_7.pt"), str(run / "checkpoint-5" / "global_step5")} <= members


def test_it_is_one_file_once_nobody_writes(tmp_path):
    """Whoever reads it needs no other beside it, nor leave to make one; while it is written, others read on."""
    write(tmp_path / "s" / "a.pt", saved(weights(1)))
    output = tmp_path / "store.db"
    for _ in range(2):
        audited(tmp_path / "s", output=output)
        assert run_here("prune", "store.db", "--keep-last", "1", cwd=tmp_path).returncode == 0
        assert {each.name for each in tmp_path.iterdir()} == {"s", "store.db"}
    with closing(Writer(str(output))) as writer, closing(schema.open_inventory(str(output))) as reader:
        writer.connection.execute("DELETE FROM checkpoint_own")
        assert reader.execute("SELECT count(*) FROM checkpoint").fetchone()[0] == 1
        writer.commit()
        assert reader.execute("SELECT count(*) FROM checkpoint").fetchone()[0] == 0
    # a reader that is open when the writing ends hinders nobody; the next who writes puts it right
    with closing(schema.open_inventory(str(output))), closing(Writer(str(output))):
        pass
    audited(tmp_path / "s", output=output)
    assert {each.name for each in tmp_path.iterdir()} == {"s", "store.db"}


def test_an_inventory_of_another_version_is_told(tmp_path):
    """In a sentence that says what to do; nothing in it is changed."""
    write(tmp_path / "x" / "step_1.pt", saved(weights()))
    audited(tmp_path / "x", output=tmp_path / "a.db")
    for version, said in ((1, r"an earlier version .* into a new file"), (99, "a later version .* Upgrade")):
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
        before = (tmp_path / "a.db").read_bytes()
        with pytest.raises(UnreadableError, match=said):
            audited(tmp_path / "x", output=tmp_path / "a.db")
        result = run_here("report", "a.db", cwd=tmp_path)
        assert result.returncode == 2 and b"a.db was written by" in result.stderr
        assert (tmp_path / "a.db").read_bytes() == before
