"""An audit puts every checkpoint of a store into a database, with what ``check`` and ``latest`` say of it."""

from __future__ import annotations

import json
import os
import shutil
import sys

import pytest
import torch

import ckptdoctor
from ckptdoctor.errors import UnreadableError, UsageError
from tests.commands import ROOT, run_anew, run_here
from tests.runs.generated import adam, in_safetensors, saved, weights, write
from tests.stores.asked import Here, audited, below, checkpoints, generated, rows, table


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of each kind of run, with planted faults."""
    folder = tmp_path_factory.mktemp("store") / "runs"
    return folder, generated(folder, range(3, 24))


@pytest.fixture(scope="module")
def database(store, tmp_path_factory):
    """The inventory of it."""
    path = tmp_path_factory.mktemp("inventory") / "store.db"
    audited(store[0], output=path)
    return path


def test_every_checkpoint_is_there_with_its_truth(store, database):
    """Whatever was planted: a checkpoint is valid where it is intact, resumable where all is there that it takes."""
    found = checkpoints(database)
    for run in store[1]:
        for each in run.saved:
            row = found[str(each.path)]
            said = (row["level"] is not None, bool(row["resumable"]))
            assert said == (each.intact, each.intact and each.resumable), (run.planted, row)
            if row["level"] is not None and run.kind != "accelerate":  # which saves no step
                assert row["step"] == each.step, (run.planted, row)


def test_what_is_not_a_checkpoint_is_told_apart(store, database):
    """What is still being written is unfinished; the final model of a run is a checkpoint by itself."""
    found = checkpoints(database)
    planted = {str(each.path) for run in store[1] for each in run.saved}
    others = {path: row["health"] for path, row in found.items() if path not in planted}
    kinds = {(os.path.basename(path) == "model.safetensors", health) for path, health in others.items()}
    assert kinds == {(True, "clean"), (False, "unfinished")}


def test_the_newest_is_what_latest_prints(store, database):
    """The newest valid checkpoint of a run by the table is the one that ``latest`` finds."""
    query = "SELECT path FROM checkpoints WHERE run_path = ? AND level IS NOT NULL AND series != ? ORDER BY step DESC"
    asked = 0
    for run in store[1]:
        if run.kind in ("accelerate", "lightning"):  # without steps; with names that are newer than steps
            continue
        newest = ckptdoctor.latest(run.folder)
        named = [each["path"] for each in rows(database, query, str(run.folder), "model.safetensors")]
        assert named[:1] == ([] if newest is None else [newest.path]), run.planted
        asked += 1
    assert asked > 10


def test_findings_are_those_of_check(store, database):
    """Each member has what ``check`` finds in it, in the same words and the same order."""
    members = [each["path"] for each in rows(database, "SELECT path FROM member ORDER BY path")]
    assert len(members) > 50
    wanted, found = {}, {}
    for report in json.loads(run_here("check", "--format", "json", *members, cwd=store[0]).stdout)["files"]:
        path = report["path"]
        if path not in members:  # a folder in which one file is a model: it is the file that is checked
            path = os.path.dirname(path)
        wanted.setdefault(path, [])
        for each in report["findings"]:
            fix = "" if each["fix"] is None else each["fix"]["option"]
            wanted[path].append((each["code"], each["severity"], each["message"], each["cause"], fix))
    for path in members:
        found[path] = [
            (each["code"], each["severity"], each["message"], each["cause"], each["fix"])
            for each in rows(database, "SELECT * FROM findings WHERE path = ? ORDER BY number", path)
        ]
    assert found == wanted


def test_nothing_is_examined_twice(store, tmp_path):
    """Until it changes: a file that was written again, one that was renamed, one that is gone."""
    for run in store[1]:
        if run.kind in ("script", "megatron"):
            shutil.copytree(run.folder, tmp_path / "runs" / run.folder.name)
    first = audited(tmp_path / "runs", output=tmp_path / "a.db")
    again = audited(tmp_path / "runs", output=tmp_path / "a.db")
    assert (again.examined, again.unchanged, again.removed) == (0, first.listed, 0)
    assert first.listed == first.examined > 10

    files = [each for each in below(tmp_path / "runs", "**/*.pt*") if "checkpoint" not in each.parent.name]
    one, other, third = [each for each in files if each.name.startswith(("ckpt", "model_0", "step", "out"))][:3]
    one.write_bytes(saved({"model": weights(7), "iter_num": 9}))
    other.unlink()
    third.rename(third.with_name("renamed.pt"))
    after = audited(tmp_path / "runs", output=tmp_path / "a.db")
    assert (after.examined, after.removed) == (2, 2)
    audited(tmp_path / "runs", output=tmp_path / "fresh.db")
    assert table(tmp_path / "a.db") == table(tmp_path / "fresh.db")


def test_another_version_examines_again(tmp_path, monkeypatch):
    """Its rules may find something else."""
    write(tmp_path / "run" / "step_1.pt", saved(weights()))
    audited(tmp_path / "run", output=tmp_path / "a.db")
    monkeypatch.setattr("ckptdoctor.stores.writer.__version__", "99.0")
    assert audited(tmp_path / "run", output=tmp_path / "a.db").examined == 1


def test_poison_stands_alone(store, database, tmp_path):
    """A batch that dies is halved until the file that kills is alone: it is a row with the reason, the others rows."""
    poison = str(next(each.path for run in store[1] for each in run.saved if run.kind == "script" and each.intact))
    engine = Here({poison})
    engine.width = 1
    audited(store[0], output=tmp_path / "a.db", engine=engine)
    found, right = checkpoints(tmp_path / "a.db"), checkpoints(database)
    assert found[poison]["error"] == "It could not be examined: it was poison."
    assert (found[poison]["health"], found[poison]["level"]) == ("unreadable", None)
    assert [poison] in engine.batches and max(map(len, engine.batches)) > 4
    assert {path: row["trouble"] for path, row in found.items() if path != poison} == {
        path: row["trouble"] for path, row in right.items() if path != poison
    }
    assert below(os.path.dirname(poison)) and audited(store[0], output=tmp_path / "a.db").examined == 0


def test_the_same_tensors_are_found_whatever_they_are_called(tmp_path):
    """By the CRCs of zips: copies, the same weights with and without an optimizer, and what only looks alike."""
    tensors = weights(1)
    write(tmp_path / "a" / "step_1.pt", saved({"model": tensors, "optimizer": adam(), "iter_num": 1}))
    shutil.copy(tmp_path / "a" / "step_1.pt", tmp_path / "a" / "best.pt")
    write(tmp_path / "b" / "final.pt", saved({"state_dict": tensors}))
    write(tmp_path / "c" / "step_1.pt", saved({"model": weights(2), "optimizer": adam(), "iter_num": 1}))
    audited(tmp_path, output=tmp_path / "a.db")
    found = checkpoints(tmp_path / "a.db")
    by_content, by_weights = {}, {}
    for path, row in found.items():
        by_content.setdefault(row["content"], set()).add(os.path.relpath(path, tmp_path))
        by_weights.setdefault(row["weights"], set()).add(os.path.relpath(path, tmp_path))
    assert {frozenset(each) for each in by_content.values()} == {
        frozenset({"a/step_1.pt", "a/best.pt"}),
        frozenset({"b/final.pt"}),
        frozenset({"c/step_1.pt"}),
    }
    assert {"a/step_1.pt", "a/best.pt", "b/final.pt"} in by_weights.values() and None not in by_weights
    (twice,) = rows(tmp_path / "a.db", "SELECT * FROM duplicates")
    assert (twice["copies"], twice["spare_bytes"]) == (2, (tmp_path / "a" / "best.pt").stat().st_size)


def test_layers_that_never_changed_are_named(tmp_path):
    """A training that moved one layer leaves the CRCs of all others as they were."""
    tensors = weights(1)
    for step in (1, 2, 3):
        tensors = tensors | {"layers.1.weight": tensors["layers.1.weight"] + 1}
        write(tmp_path / "x" / f"step_{step}.pt", saved({"model": tensors, "iter_num": step}))
    said = json.loads(run_here("audit", "x", "--jobs", "1", "--format", "json", cwd=tmp_path).stdout)
    (found,) = said["unchanged_tensors"]
    assert found["keys"] == ["model/layers.0.weight", "model/layers.0.bias", "model/layers.1.bias"]
    assert (found["checkpoints"], found["of"]) == (3, 4)


def test_what_is_needed_by_something_else_is_known(tmp_path):
    """The base of an adapter, the target of a link, the best of a run, and the last by the library's own file."""
    run = tmp_path / "run"
    for step in (100, 200):
        write(run / f"checkpoint-{step}" / "model.safetensors", in_safetensors())
        state = {"global_step": step, "best_model_checkpoint": "/elsewhere/run/checkpoint-100", "log_history": []}
        write(run / f"checkpoint-{step}" / "trainer_state.json", state)
    write(tmp_path / "ds" / "global_step5" / "mp_rank_00_model_states.pt", saved({"module": weights()}))
    (tmp_path / "ds" / "latest").write_text("global_step5")
    write(tmp_path / "lora" / "adapter_model.safetensors", in_safetensors())
    write(tmp_path / "lora" / "adapter_config.json", {"base_model_name_or_path": str(run / "checkpoint-200")})
    (run / "newest").symlink_to(run / "checkpoint-200")
    audited(tmp_path, output=tmp_path / "a.db")
    found = {
        (each["kind"], os.path.relpath(each["source"], tmp_path), os.path.relpath(each["target_path"], tmp_path))
        for each in rows(tmp_path / "a.db", "SELECT * FROM references_to")
    }
    assert found == {
        ("best", "run/checkpoint-100", "run/checkpoint-100"),
        ("best", "run/checkpoint-200", "run/checkpoint-100"),
        ("latest", "ds/latest", "ds/global_step5"),
        ("base", "lora/adapter_model.safetensors", "run/checkpoint-200"),
        ("link", "run/newest", "run/checkpoint-200"),
    }


def test_how_good_a_checkpoint_is(tmp_path):
    """From its name, from the Trainer's last evaluation, and from Lightning's ModelCheckpoint."""
    write(tmp_path / "a" / "epoch=3-val_loss=0.25.ckpt", saved({"state_dict": weights(), "epoch": 3}))
    callbacks = {
        "ModelCheckpoint{'monitor': 'val_acc', 'mode': 'max'}": {
            "monitor": "val_acc",
            "current_score": torch.tensor(0.75),
            "best_model_path": "/gone/b/last.ckpt",
        }
    }
    write(tmp_path / "b" / "last.ckpt", saved({"state_dict": weights(), "global_step": 5, "callbacks": callbacks}))
    write(tmp_path / "c" / "checkpoint-7" / "model.safetensors", in_safetensors())
    history = [{"loss": 3, "step": 5}, {"eval_loss": 2.5, "eval_f1": 0.5, "eval_runtime": 9.0, "step": 7}]
    state = {"global_step": 7, "best_metric": 0.5, "log_history": history}
    write(tmp_path / "c" / "checkpoint-7" / "trainer_state.json", state)
    audited(tmp_path, output=tmp_path / "a.db")
    columns = ("metric", "metric_name", "metric_source", "metric_mode")
    found = {tuple(each[name] for name in columns) for each in checkpoints(tmp_path / "a.db").values()}
    assert found == {
        (0.25, "val_loss", "its name", "min"),
        (0.75, "val_acc", "ModelCheckpoint", "max"),
        (0.5, "eval_f1", "trainer_state.json", "max"),
    }


def test_a_cache_of_the_hub_is_examined_once(tmp_path):
    """The links of a snapshot are the files of its checkpoint; the blobs behind them are none of their own."""
    blobs, snapshot = tmp_path / "models--x--y" / "blobs", tmp_path / "models--x--y" / "snapshots" / "abc"
    write(blobs / ("0" * 64), in_safetensors())
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(f"../../blobs/{'0' * 64}")
    audited(tmp_path, output=tmp_path / "a.db")
    assert list(checkpoints(tmp_path / "a.db")) == [str(snapshot / "model.safetensors")]


def test_space_on_disk_counts_a_file_once(tmp_path):
    """Two names of one file take its blocks once; a sparse file takes fewer than it has bytes."""
    write(tmp_path / "x" / "step_1.pt", saved(weights()))
    os.link(tmp_path / "x" / "step_1.pt", tmp_path / "x" / "step_2.pt")
    said = json.loads(run_here("audit", "x", "--jobs", "1", "--format", "json", cwd=tmp_path).stdout)
    status = (tmp_path / "x" / "step_1.pt").stat()
    assert said["bytes"] == 2 * status.st_size
    assert said["blocks"] == 512 * status.st_blocks


def test_a_folder_that_cannot_be_listed_keeps_what_was_known(tmp_path, monkeypatch):
    """Nobody knows what became of its checkpoints; the summary names it, and the status is 2."""
    for name in ("a", "b"):
        write(tmp_path / "s" / name / "step_1.pt", saved(weights()))
    audited(tmp_path / "s", output=tmp_path / "a.db")
    from ckptdoctor.stores import listing

    real = listing.entries

    def refused(path):
        if path.endswith("/a"):
            raise UnreadableError(f"{path} cannot be listed: Permission denied.")
        return real(path)

    monkeypatch.setattr(listing, "entries", refused)
    result = run_here("audit", "s", "-o", "a.db", cwd=tmp_path)
    assert result.returncode == 2 and b"1 folder not looked into:\n  s/a: " in result.stdout
    assert len(checkpoints(tmp_path / "a.db")) == 2


def test_what_the_command_says(store, tmp_path):
    """The status is that of ``check``; a command for each kind of damage works; an empty store is told."""
    result = run_here("audit", str(store[0]), "-o", tmp_path / "a.db", "--jobs", "2", cwd=tmp_path)
    text = result.stdout.decode()
    assert result.returncode == 1 and "a.db: " in text and "Space by run:" in text and "F005 truncated-zip: " in text
    assert "Not examined: checksums and values" in text
    write(tmp_path / "good" / "step_1.pt", saved(weights()))
    assert run_here("audit", "good", "-o", "b.db", "--jobs", "1", cwd=tmp_path).returncode == 0
    (tmp_path / "none").mkdir()
    result = run_here("audit", "none", "-o", "c.db", cwd=tmp_path)
    assert result.returncode == 0 and result.stdout.startswith(b"c.db: 0 checkpoints")


def test_what_cannot_be_done_is_told_in_a_sentence(tmp_path):
    """A store that is not there, one inside of another, and a database that is something else."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "x.db").write_text("no database")
    with pytest.raises(UnreadableError, match=r"nowhere"):
        audited(tmp_path / "nowhere", output=tmp_path / "a.db")
    with pytest.raises(UsageError, match=r"Name only the outer one\."):
        audited(tmp_path / "a", tmp_path / "a" / "b", output=tmp_path / "a.db")
    with pytest.raises(UnreadableError, match=r"x\.db cannot be opened as an inventory"):
        audited(tmp_path / "a", output=tmp_path / "x.db")
    assert (tmp_path / "x.db").read_text() == "no database"
    with pytest.raises(UsageError, match=r'"rya" is not one of '):
        from ckptdoctor.stores.audit import AuditRequest, audit

        audit(AuditRequest((str(tmp_path / "a"),), str(tmp_path / "a.db"), engine="rya"))


@pytest.mark.parametrize("command", ["audit", "watch"])
def test_an_empty_path_is_not_this_folder(tmp_path, command):
    """As where a variable of a script is not set."""
    done = run_here(command, "", cwd=tmp_path)
    assert done.returncode == 2 and b"has an empty path" in done.stderr and not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_disk_that_is_full_leaves_no_empty_database(tmp_path):
    """What cannot be begun is not left behind."""
    import resource

    (tmp_path / "run").mkdir()
    done = run_anew(
        *("audit", "run", "--jobs", "1"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600)),
    )
    assert done.returncode == 2 and [each.name for each in tmp_path.iterdir()] == ["run"]
